#include "bench/step_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"
#include "engine/kv_cache.h"

namespace quire {
namespace {

std::vector<int32_t> contexts_of(const RequestGroup& group) {
  std::vector<int32_t> contexts(static_cast<size_t>(group.requests), group.context_len);
  if (group.context_len == group.last_context_len || group.requests == 1) return contexts;
  if (group.spread == RequestGroup::Spread::kDifferences) {
    const double all = group.last_context_len - group.context_len, steps = group.requests - 1.0;
    for (size_t i = 0; i < contexts.size(); ++i)
      contexts[i] += static_cast<int32_t>(std::lround(all * static_cast<double>(i) / steps));
    return contexts;
  }
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

int32_t layers_to_visit(int32_t layers, double kv_bytes, int64_t last_cache_bytes) {
  constexpr double kMostLayers = 32;
  if (layers > 0) return layers;
  return static_cast<int32_t>(
      std::clamp(std::ceil(2.0 * static_cast<double>(last_cache_bytes) / kv_bytes), 1.0, kMostLayers));
}

void check_step_memory(const AttentionRow& row, int64_t layers, int64_t blocks, int64_t tokens, int64_t element_bytes,
                       int64_t available_bytes) {
  const AttentionGroup& group = row.group;
  const double cache =
      static_cast<double>(layers) * static_cast<double>(blocks) * static_cast<double>(kv_block_bytes(group, 1));
  const double rows = static_cast<double>(tokens) * group.heads * (group.head_dim + group.v_head_dim) *
                      static_cast<double>(element_bytes);
  const double available = static_cast<double>(available_bytes);
  constexpr double kLargestIndex = INT32_MAX;
  if (cache + rows > 0.8 * available || static_cast<double>(tokens) > kLargestIndex ||
      static_cast<double>(blocks) > kLargestIndex) {
    throw Error(ErrorKind::kResourceExhausted,
                fmt::format("{}: needs {:.2f} GiB for the caches of {} layers and {:.2f} GiB for {} rows, {:.2f} GiB "
                            "are free; lower --batch, --context-len, --query-len or --layers",
                            row.name, cache / (1 << 30), layers, rows / (1 << 30), tokens, available / (1 << 30)));
  }
}

int64_t step_blocks(const AttentionRow& row) {
  int64_t blocks = 0;
  for_each_request(row, [&](int32_t query_len, int32_t context_len) {
    blocks += blocks_of(int64_t{context_len} + query_len, row.group.block_size);
  });
  return blocks;
}

StepBatch::StepBatch(const AttentionRow& row) {
  const int32_t block_size = row.group.block_size;
  std::vector<int32_t> free_blocks(static_cast<size_t>(step_blocks(row)));
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
    stride = std::max(stride, blocks_of(kv_len, block_size));
  });
  tables_.assign(kv_lens_.size() * static_cast<size_t>(stride), 0);
  for (size_t r = 0; r < kv_lens_.size(); ++r) {
    int32_t* table = tables_.data() + static_cast<int64_t>(r) * stride;
    for (int64_t i = 0; i < blocks_of(kv_lens_[r], block_size); ++i) {
      table[i] = free_blocks.back();
      free_blocks.pop_back();
    }
    const int32_t query_len = offsets_[r + 1] - offsets_[r];
    for (int64_t t = kv_lens_[r] - query_len; t < kv_lens_[r]; ++t)
      slots_.push_back(int64_t{table[t / block_size]} * block_size + t % block_size);
  }
  batch_.query_offsets = offsets_;
  batch_.kv_lens = kv_lens_;
  batch_.block_tables = tables_.data();
  batch_.block_table_stride = stride;
  batch_.block_table_rows = table_rows_;
  batch_.slots = slots_;
}

int64_t StepBatch::request_of(int32_t token) const {
  return std::upper_bound(offsets_.begin(), offsets_.end(), token) - offsets_.begin() - 1;
}

}  // namespace quire
