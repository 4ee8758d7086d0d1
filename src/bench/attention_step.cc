#include "bench/attention_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/numa.h"
#include "kernels/attention/ref/attention_ref.h"
#include "kernels/kv_write/kv_write.h"

namespace quire {
namespace {

// Queries longer than keys, as in real models, so that the weights are far from equal.
constexpr float kLargestQuery = 3.0f;

std::vector<int32_t> contexts_of(const RequestGroup& group) {
  std::vector<int32_t> contexts(static_cast<size_t>(group.requests), group.context_len);
  if (group.context_len == group.last_context_len || group.requests == 1) return contexts;
  const double ratio = std::log(static_cast<double>(group.last_context_len) / group.context_len);
  for (size_t i = 0; i < contexts.size(); ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(contexts.size() - 1);
    contexts[i] = static_cast<int32_t>(std::lround(group.context_len * std::exp(ratio * share)));
  }
  return contexts;
}

// Pairs of a query and a key that it sees, for queries at context_len...
double visible_pairs(double context_len, double query_len, double window) {
  const double all = query_len * context_len + query_len * (query_len + 1) / 2;
  if (window == 0) return all;
  // Queries from position window - 1 on see no more than the window.
  const double first_cut = std::max(context_len, window);
  const double cut = std::max(0.0, context_len + query_len - first_cut);
  const double beyond = cut * (first_cut - window) + cut * (cut + 1) / 2;
  return all - beyond;
}

template <class Fn>
void for_each_request(const AttentionRow& row, Fn&& fn) {
  for (const RequestGroup& group : row.step) {
    for (const int32_t context_len : contexts_of(group)) fn(group.query_len, context_len);
  }
}

int64_t blocks_of(int64_t tokens, int64_t block_size) { return (tokens + block_size - 1) / block_size; }

void check_memory(const AttentionRow& row, int64_t layers, int64_t blocks, int64_t tokens) {
  const AttentionGroup& group = row.group;
  const double cache =
      static_cast<double>(layers) * static_cast<double>(blocks) * static_cast<double>(kv_block_bytes(group, 1));
  const double rows = static_cast<double>(tokens) * group.heads * (group.head_dim + group.v_head_dim) * sizeof(float);
  const double available = static_cast<double>(available_memory_bytes());
  constexpr double kLargestIndex = INT32_MAX;
  if (cache + rows > 0.8 * available || static_cast<double>(tokens) > kLargestIndex ||
      static_cast<double>(blocks) > kLargestIndex) {
    throw Error(ErrorKind::kResourceExhausted,
                fmt::format("{}: needs {:.2f} GiB for the caches of {} layers and {:.2f} GiB for {} rows, {:.2f} GiB "
                            "are free; lower --batch, --context-len, --query-len or --layers",
                            row.name, cache / (1 << 30), layers, rows / (1 << 30), tokens, available / (1 << 30)));
  }
}

// Random numbers to take runs from: values of a real step differ from one another, but they need not all be new.
class RandomValues {
 public:
  explicit RandomValues(size_t longest_run) : values_(kValues + longest_run) {
    uint32_t state = 0x9e3779b9;
    for (float& value : values_) {
      state ^= state << 13;
      state ^= state >> 17;
      state ^= state << 5;
      value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
  }
  const float* run() { return values_.data() + random_() % kValues; }

 private:
  static constexpr size_t kValues = (1 << 20) + 7;
  std::vector<float> values_;
  std::mt19937 random_{11};
};

void copy_layer(const PagedKv& from, const PagedKv& to, ThreadPool& pool) {
  const auto copy = [&](const void* source, void* destination, int64_t bytes) {
    constexpr int64_t kPiece = 1 << 20;
    pool.parallel_for(blocks_of(bytes, kPiece), [&](int64_t begin, int64_t end, int) {
      std::memcpy(static_cast<std::byte*>(destination) + begin * kPiece,
                  static_cast<const std::byte*>(source) + begin * kPiece,
                  static_cast<size_t>(std::min(end * kPiece, bytes) - begin * kPiece));
    });
  };
  copy(from.k, to.k, from.blocks * k_block_bytes(from));
  copy(from.v, to.v, from.blocks * v_block_bytes(from));
  if (from.scaling != KvScaling::kTokenHead) return;
  const auto bytes = plane_scales(from) * static_cast<int64_t>(sizeof(float));
  copy(from.k_scales, to.k_scales, bytes);
  copy(from.v_scales, to.v_scales, bytes);
}

}  // namespace

AttentionWork attention_work(const AttentionRow& row) {
  const AttentionGroup& group = row.group;
  const PagedKv block = kv_of(group, 1);
  const double scales = block.scaling == KvScaling::kTokenHead ? 2.0 * group.kv_heads * sizeof(float) : 0.0;
  const double token_bytes =
      static_cast<double>(k_block_bytes(block) + v_block_bytes(block)) / group.block_size + scales;
  AttentionWork work;
  double pairs = 0;
  for_each_request(row, [&](int32_t query_len, int32_t context_len) {
    const int64_t kv_len = int64_t{context_len} + query_len;
    ++work.requests;
    work.tokens += query_len;
    work.kv_tokens += group.window > 0 ? std::min(kv_len, int64_t{group.window} + query_len - 1) : kv_len;
    pairs += visible_pairs(context_len, query_len, group.window);
  });
  work.kv_bytes = static_cast<double>(work.kv_tokens) * token_bytes;
  work.flop = pairs * group.heads * 2.0 * (group.head_dim + group.v_head_dim);
  return work;
}

AttentionStep::AttentionStep(const AttentionRow& row, int32_t layers, int64_t l3_bytes, ThreadPool& pool)
    : group_(row.group) {
  const AttentionWork work = attention_work(row);
  int64_t blocks = 0;
  for_each_request(row, [&](int32_t query_len, int32_t context_len) {
    blocks += blocks_of(int64_t{context_len} + query_len, group_.block_size);
  });
  if (layers == 0) {
    constexpr double kMostLayers = 32;
    layers = static_cast<int32_t>(
        std::clamp(std::ceil(2.0 * static_cast<double>(l3_bytes) / work.kv_bytes), 1.0, kMostLayers));
  }
  check_memory(row, layers, blocks, work.tokens);
  cache_ = std::make_unique<KvCache>(group_, layers, blocks);
  make_batch(row);
  fill(pool);
}

void AttentionStep::make_batch(const AttentionRow& row) {
  std::vector<int32_t> free_blocks(static_cast<size_t>(cache_->blocks()));
  std::iota(free_blocks.begin(), free_blocks.end(), 0);
  std::mt19937 random(5);
  std::shuffle(free_blocks.begin(), free_blocks.end(), random);

  offsets_.push_back(0);
  int64_t stride = 0;
  for_each_request(row, [&](int32_t query_len, int32_t context_len) {
    const int32_t kv_len = context_len + query_len;
    const Phase phase = phase_of(context_len, query_len, 1);
    PhaseRange& range = phase == Phase::kDecode   ? batch_.decode
                        : phase == Phase::kExtend ? batch_.extend
                                                  : batch_.prefill;
    if (range.requests++ == 0) {
      range.first_request = static_cast<int32_t>(kv_lens_.size());
      range.first_token = offsets_.back();
    }
    range.tokens += query_len;
    range.max_query_len = std::max(range.max_query_len, query_len);
    range.max_kv_len = std::max(range.max_kv_len, kv_len);
    table_rows_.push_back(static_cast<int32_t>(kv_lens_.size()));
    kv_lens_.push_back(kv_len);
    offsets_.push_back(offsets_.back() + query_len);
    stride = std::max(stride, blocks_of(kv_len, group_.block_size));
  });
  tables_.assign(kv_lens_.size() * static_cast<size_t>(stride), 0);
  for (size_t r = 0; r < kv_lens_.size(); ++r) {
    int32_t* table = tables_.data() + static_cast<int64_t>(r) * stride;
    for (int64_t i = 0; i < blocks_of(kv_lens_[r], group_.block_size); ++i) {
      table[i] = free_blocks.back();
      free_blocks.pop_back();
    }
    const int32_t query_len = offsets_[r + 1] - offsets_[r];
    for (int64_t t = kv_lens_[r] - query_len; t < kv_lens_[r]; ++t)
      slots_.push_back(int64_t{table[t / group_.block_size]} * group_.block_size + t % group_.block_size);
  }
  batch_.query_offsets = offsets_;
  batch_.kv_lens = kv_lens_;
  batch_.block_tables = tables_.data();
  batch_.block_table_stride = stride;
  batch_.block_table_rows = table_rows_;
  batch_.slots = slots_;
}

void AttentionStep::fill(ThreadPool& pool) {
  constexpr int64_t kRun = 256;  // tokens
  const PagedKv& kv = cache_->layers()[0];
  const int64_t k_row = int64_t{kv.kv_heads} * kv.head_dim, v_row = int64_t{kv.kv_heads} * kv.v_head_dim;
  const int64_t q_row = int64_t{group_.heads} * group_.head_dim, tokens = offsets_.back();
  RandomValues values(static_cast<size_t>(std::max({kRun * k_row, kRun * v_row, q_row})));
  std::vector<int64_t> slots(kRun);
  // Every slot of the cache, past the ends of requests too.
  for (int64_t first = 0; first < kv.blocks * kv.block_size; first += kRun) {
    const int64_t n = std::min(kRun, kv.blocks * kv.block_size - first);
    std::iota(slots.begin(), slots.end(), first);
    const ConstHeadRows k{values.run(), k_row, kv.head_dim, DType::kF32};
    const ConstHeadRows v{values.run(), v_row, kv.v_head_dim, DType::kF32};
    kv_write(k, v, slots.data(), n, kv, pool);
  }
  for (int32_t i = 1; i < layers(); ++i) copy_layer(kv, layer(i).kv, pool);

  q_.resize(static_cast<size_t>(tokens * q_row));
  for (int64_t row = 0; row < tokens; ++row) {
    const float* from = values.run();
    std::transform(from, from + q_row, q_.begin() + row * q_row, [](float x) { return x * kLargestQuery; });
  }
  out_.resize(static_cast<size_t>(tokens * group_.heads * group_.v_head_dim));
}

ConstHeadRows AttentionStep::q() const {
  return {q_.data(), int64_t{group_.heads} * group_.head_dim, group_.head_dim, DType::kF32};
}

HeadRows AttentionStep::out() {
  return {out_.data(), int64_t{group_.heads} * group_.v_head_dim, group_.v_head_dim, DType::kF32};
}

// Elements that the reference touches for one token: it reads all keys up to it, and scores the visible ones.
int64_t AttentionStep::token_cost(int64_t request, int64_t row) const {
  const auto r = static_cast<size_t>(request);
  const int64_t keys = kv_lens_[r] - (offsets_[r + 1] - 1 - row);
  const int64_t seen = group_.window > 0 ? std::min<int64_t>(keys, group_.window) : keys;
  return (keys * group_.kv_heads + seen * group_.heads) * (group_.head_dim + group_.v_head_dim);
}

AttentionStep::Check AttentionStep::check() const {
  constexpr int64_t kBudget = 200'000'000;
  constexpr size_t kMostTokens = 64;
  AttentionArgs args;
  args.heads = group_.heads;
  args.scale = group_.scale;
  args.soft_cap = group_.soft_cap;
  args.window = group_.window;
  args.kv = cache_->layers()[0];
  args.q = q();

  const int32_t tokens = offsets_.back();
  std::vector<int32_t> rows = {0, tokens - 1};
  std::mt19937 random(17);
  while (rows.size() < kMostTokens) rows.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(tokens)));

  const int64_t row_floats = int64_t{group_.heads} * group_.v_head_dim;
  std::vector<double> expected(static_cast<size_t>(row_floats));
  Check check;
  double largest_value = 0.0;
  int64_t spent = 0;
  for (const int32_t row : rows) {
    const int64_t request = std::upper_bound(offsets_.begin(), offsets_.end(), row) - offsets_.begin() - 1;
    const auto r = static_cast<size_t>(request);
    spent += token_cost(request, row);
    if (check.tokens >= 2 && spent > kBudget) break;
    const int64_t position = kv_lens_[r] - (offsets_[r + 1] - row);
    largest_value = std::max(largest_value, attention_ref(args, tables_.data() + request * batch_.block_table_stride,
                                                          row, 1, position, expected.data()));
    for (int64_t i = 0; i < row_floats; ++i) {
      const double error = std::abs(out_[static_cast<size_t>(row * row_floats + i)] - expected[static_cast<size_t>(i)]);
      if (!(error <= check.largest_error)) check.largest_error = std::isnan(error) ? INFINITY : error;
    }
    ++check.tokens;
  }
  // |q| is 3 sqrt(d / 3) and |k| is sqrt(d / 3) in the mean. The error of a score grows with sqrt(d) roundings of their
  // product, and a soft cap adds that of tanh. The relative error of a weight is twice that of the scores; the rest is
  // for exp and the two sums over a partition.
  const double eps = std::ldexp(1.0, -24), d = group_.head_dim;
  const double score = 2.0 * std::sqrt(d) * kLargestQuery * d / 3.0 * group_.scale + 4.0 * group_.soft_cap;
  check.bound = largest_value * eps * (2.0 * score + 32.0);
  return check;
}

}  // namespace quire
