#pragma once
// A random step over a paged cache: requests of given lengths, scattered blocks, K and V written element by element,
// NaN in every slot that no request owns.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention/backend.h"
#include "kernels/attention/ref/attention_ref.h"

namespace quire::testing {

struct Lengths {
  int32_t context = 0, query = 0;
};

// A group with what its layers have, and the type of q and out.
struct Shape {
  AttentionGroup group;
  std::vector<float> slopes, sinks;       // [heads] or empty
  std::vector<float> k_scales, v_scales;  // for KvScaling::kTensor and kHead
  DType io = DType::kF32;

  Shape(const AttentionGroup& g) : group(g) {}  // NOLINT: a group alone is the simplest shape

  AttentionGroup view() const {
    AttentionGroup g = group;
    g.alibi_slopes = slopes;
    return g;
  }
};

inline AttentionGroup make_group(int32_t heads, int32_t kv_heads, int32_t head_dim, DType dtype = DType::kF32,
                                 KvLayout layout = KvLayout::kPlain, int32_t block_size = 16) {
  AttentionGroup group;
  group.heads = heads;
  group.kv_heads = kv_heads;
  group.head_dim = group.v_head_dim = head_dim;
  group.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  group.kv_dtype = dtype;
  group.layout = layout;
  group.block_size = block_size;
  return group;
}

// Element `at` of a plane, rounded to its type.
inline void put(void* plane, DType dtype, int64_t at, float x) {
  switch (dtype) {
    case DType::kF16:
      static_cast<uint16_t*>(plane)[at] = f32_to_f16(x);
      break;
    case DType::kBF16:
      static_cast<uint16_t*>(plane)[at] = f32_to_bf16(x);
      break;
    case DType::kF8E4M3:
      static_cast<uint8_t*>(plane)[at] = f32_to_f8e4m3(x);
      break;
    case DType::kF8E5M2:
      static_cast<uint8_t*>(plane)[at] = f32_to_f8e5m2(x);
      break;
    case DType::kI8:
      static_cast<int8_t*>(plane)[at] = static_cast<int8_t>(std::lround(x));
      break;
    default:
      static_cast<float*>(plane)[at] = x;
  }
}

inline float get(const void* plane, DType dtype, int64_t at) {
  float value;
  dequantize(dtype, static_cast<const std::byte*>(plane) + at * block_bytes(dtype), &value, 1);
  return value;
}

// One layer's cache: all of it NaN at first, where its type has one, and all scales of tokens NaN.
class Cache {
 public:
  Cache(const Shape& shape, int64_t blocks) : kv_(kv_of(shape.group, blocks)) {
    k_.assign(static_cast<size_t>(k_plane_bytes(kv_)), std::byte{0xff});
    v_.assign(static_cast<size_t>(v_plane_bytes(kv_)), std::byte{0xff});
    kv_.k = k_.data();
    kv_.v = v_.data();
    k_scales_ = shape.k_scales;
    v_scales_ = shape.v_scales;
    if (kv_.scaling == KvScaling::kTokenHead) {
      k_scales_.assign(static_cast<size_t>(plane_scales(kv_)), NAN);
      v_scales_ = k_scales_;
    }
    if (kv_.scaling == KvScaling::kNone) return;
    kv_.k_scales = k_scales_.data();
    kv_.v_scales = v_scales_.data();
  }
  const PagedKv& view() const { return kv_; }

  // K and V of one token, [kv_heads, head_dim] and [kv_heads, v_head_dim].
  void put_token(int64_t block, int64_t slot, const float* k, const float* v) {
    const bool plain = kv_.layout == KvLayout::kPlain;
    for (int64_t h = 0; h < kv_.kv_heads; ++h, k += kv_.head_dim, v += kv_.v_head_dim) {
      const float k_scale = scale(k_scales_, k, kv_.head_dim, block, slot, h),
                  v_scale = scale(v_scales_, v, kv_.v_head_dim, block, slot, h);
      for (int64_t d = 0; d < kv_.head_dim; ++d) {
        put(kv_.k, kv_.dtype, plain ? PlainLayout::k(kv_, block, slot, h, d) : ShuffleLayout::k(kv_, block, slot, h, d),
            k[d] / k_scale);
      }
      for (int64_t d = 0; d < kv_.v_head_dim; ++d) {
        put(kv_.v, kv_.dtype, plain ? PlainLayout::v(kv_, block, slot, h, d) : ShuffleLayout::v(kv_, block, slot, h, d),
            v[d] / v_scale);
      }
    }
  }

 private:
  float scale(std::vector<float>& scales, const float* x, int64_t n, int64_t block, int64_t slot, int64_t head) const {
    if (kv_.scaling == KvScaling::kNone) return 1.0f;
    float& value = scales[static_cast<size_t>(scale_index(kv_, block, slot, head))];
    if (kv_.scaling == KvScaling::kTokenHead) {
      float largest = 0.0f;
      for (int64_t d = 0; d < n; ++d) largest = std::max(largest, std::abs(x[d]));
      value = largest / (kv_.dtype == DType::kI8 ? 127.0f : 448.0f);
    }
    return value;
  }

  PagedKv kv_;
  std::vector<std::byte> k_, v_;
  std::vector<float> k_scales_, v_scales_;
};

// Tokens of one request, the same whatever the batch around it: values from a generator that `seed` starts.
struct RequestData {
  Lengths lengths;
  std::vector<float> k, v;  // [kv_len, kv_heads, head_dim], [kv_len, kv_heads, v_head_dim]
  std::vector<float> q;     // [query, heads, head_dim]

  RequestData(const AttentionGroup& group, Lengths l, uint32_t seed) : lengths(l) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    const auto fill = [&](std::vector<float>& x, int64_t n) {
      x.resize(static_cast<size_t>(n));
      for (float& value : x) value = uniform(random);
    };
    const int64_t tokens = int64_t{l.context + l.query} * group.kv_heads;
    fill(k, tokens * group.head_dim);
    fill(v, tokens * group.v_head_dim);
    fill(q, int64_t{l.query} * group.heads * group.head_dim);
    // Queries as long as those of real models, so that the weights are far from equal.
    for (float& value : q) value *= 3.0f;
  }
};

// The step of `requests`, which are put in phase order; outputs come back in the order given.
class Step {
 public:
  Step(const Shape& shape, const std::vector<RequestData>& requests, uint32_t seed, int32_t decode_threshold = 1)
      : shape_(shape), requests_(requests), cache_(shape, blocks_needed(shape.group, requests)) {
    const AttentionGroup& group = shape.group;
    const auto phase = [&](size_t i) {
      const Lengths& l = requests_[i].lengths;
      return phase_of(l.context, l.query, decode_threshold);
    };
    order_.resize(requests.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return phase(a) < phase(b); });

    std::mt19937 random(seed);
    std::vector<int32_t> free_blocks(static_cast<size_t>(cache_.view().blocks));
    std::iota(free_blocks.begin(), free_blocks.end(), 0);
    std::shuffle(free_blocks.begin(), free_blocks.end(), random);
    table_rows_.resize(requests.size());
    std::iota(table_rows_.begin(), table_rows_.end(), 0);
    std::shuffle(table_rows_.begin(), table_rows_.end(), random);
    for (const RequestData& r : requests) stride_ = std::max<int64_t>(stride_, blocks_of(group, r.lengths) + 1);
    tables_.assign(requests.size() * static_cast<size_t>(stride_), -1);

    offsets_.push_back(0);
    for (size_t n = 0; n < order_.size(); ++n) {
      const RequestData& r = requests_[order_[n]];
      const int64_t kv_len = r.lengths.context + r.lengths.query;
      int32_t* table = tables_.data() + table_rows_[n] * stride_;
      for (int64_t i = 0; i < blocks_of(group, r.lengths); ++i) {
        table[i] = free_blocks.back();
        free_blocks.pop_back();
      }
      for (int64_t t = 0; t < kv_len; ++t) {
        const int64_t block = table[t / group.block_size], slot = t % group.block_size;
        cache_.put_token(block, slot, r.k.data() + t * group.kv_heads * group.head_dim,
                         r.v.data() + t * group.kv_heads * group.v_head_dim);
        if (t >= r.lengths.context) slots_.push_back(block * group.block_size + slot);
      }
      offsets_.push_back(offsets_.back() + r.lengths.query);
      kv_lens_.push_back(static_cast<int32_t>(kv_len));
      PhaseRange& range = range_of(phase(order_[n]));
      if (range.requests++ == 0) {
        range.first_request = static_cast<int32_t>(n);
        range.first_token = offsets_[n];
      }
      range.tokens += r.lengths.query;
      range.max_query_len = std::max(range.max_query_len, r.lengths.query);
      range.max_kv_len = std::max(range.max_kv_len, kv_lens_.back());
    }
    batch_.query_offsets = offsets_;
    batch_.kv_lens = kv_lens_;
    batch_.block_tables = tables_.data();
    batch_.block_table_stride = stride_;
    batch_.block_table_rows = table_rows_;
    batch_.slots = slots_;

    // Rows and heads further apart than they need be.
    args_.heads = group.heads;
    args_.scale = group.scale;
    args_.soft_cap = group.soft_cap;
    args_.window = group.window;
    args_.alibi_slopes = shape_.slopes.empty() ? nullptr : shape_.slopes.data();
    args_.sinks = shape_.sinks.empty() ? nullptr : shape_.sinks.data();
    args_.kv = cache_.view();
    args_.q.dtype = args_.out.dtype = shape.io;
    args_.q.head_stride = group.head_dim + static_cast<int64_t>(seed % 3) * 3;
    args_.q.row_stride = group.heads * args_.q.head_stride + 5;
    args_.out.head_stride = group.v_head_dim + static_cast<int64_t>(seed % 2);
    args_.out.row_stride = group.heads * args_.out.head_stride + 7;
    q_.assign(static_cast<size_t>(tokens() * args_.q.row_stride * block_bytes(shape.io)), std::byte{0xff});
    for (size_t n = 0; n < order_.size(); ++n) {
      const float* from = requests_[order_[n]].q.data();
      for (int64_t row = offsets_[n]; row < offsets_[n + 1]; ++row) {
        for (int64_t h = 0; h < group.heads; ++h) {
          for (int64_t d = 0; d < group.head_dim; ++d)
            put(q_.data(), shape.io, row * args_.q.row_stride + h * args_.q.head_stride + d, *from++);
        }
      }
    }
    args_.q.data = q_.data();
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  const AttentionBatch& batch() const { return batch_; }
  const AttentionArgs& args() const { return args_; }
  int32_t tokens() const { return offsets_.back(); }
  int32_t requests() const { return static_cast<int32_t>(order_.size()); }

  // One vector [query, heads, v_head_dim] for each request.
  std::vector<std::vector<float>> run(const AttentionBackend& backend, ThreadPool& pool) const {
    const AttentionGroup group = shape_.view();
    const auto plan = backend.make_plan(group, requests(), tokens());
    Workspace workspace(backend.workspace_bytes(group, requests(), tokens()));
    backend.plan(batch_, *plan);
    return run(backend, *plan, workspace, pool);
  }

  std::vector<std::vector<float>> run(const AttentionBackend& backend, const AttentionPlan& plan, Workspace& workspace,
                                      ThreadPool& pool) const {
    const AttentionGroup& group = shape_.group;
    std::vector<std::byte> memory(static_cast<size_t>(tokens() * args_.out.row_stride * block_bytes(shape_.io)));
    for (int64_t i = 0; i < tokens() * args_.out.row_stride; ++i) put(memory.data(), shape_.io, i, kSentinel);
    HeadRows out = args_.out;
    out.data = memory.data();
    backend.run(plan, args_.q, {args_.kv, args_.sinks}, out, workspace, pool);
    std::vector<std::vector<float>> results(order_.size());
    for (size_t n = 0; n < order_.size(); ++n) {
      for (int64_t row = offsets_[n]; row < offsets_[n + 1]; ++row) {
        for (int64_t at = 0; at < out.row_stride; ++at) {
          const float x = get(memory.data(), shape_.io, row * out.row_stride + at);
          if (at / out.head_stride < group.heads && at % out.head_stride < group.v_head_dim) {
            results[order_[n]].push_back(x);
          } else {
            touched_outside_ = touched_outside_ || x != kSentinel;
          }
        }
      }
    }
    return results;
  }
  bool touched_outside() const { return touched_outside_; }

  // The largest difference of `results` from the double reference, as a share of what rounding allows: 2e-5 of the
  // largest value for the arithmetic in f32, and half a unit in the last place of the output's type. `where` says which
  // value that is.
  double error(const std::vector<std::vector<float>>& results, std::string* where = nullptr) const {
    const double rounding = shape_.io == DType::kF32 ? 0.0 : std::ldexp(1.0, shape_.io == DType::kF16 ? -11 : -8);
    if (references_.empty()) compute_references();
    double worst = 0.0;
    for (size_t n = 0; n < order_.size(); ++n) {
      const std::vector<float>& got = results[order_[n]];
      const auto& [expected, largest] = references_[n];
      for (size_t i = 0; i < got.size(); ++i) {
        const double difference = std::abs(got[i] - expected[i]), allowed = largest * (2e-5 + rounding);
        const double share = std::isnan(difference) ? INFINITY : difference / allowed;
        if (where != nullptr && share > worst) {
          const auto head = static_cast<int64_t>(i) / shape_.group.v_head_dim;
          *where = "request " + std::to_string(order_[n]) + " row " + std::to_string(head / shape_.group.heads) +
                   " head " + std::to_string(head % shape_.group.heads) + " dim " +
                   std::to_string(static_cast<int64_t>(i) % shape_.group.v_head_dim) + ": " + std::to_string(got[i]) +
                   " instead of " + std::to_string(expected[i]);
        }
        worst = std::max(worst, share);
      }
    }
    return worst;
  }

 private:
  // Outputs in double and the largest |v|, of each request in phase order.
  void compute_references() const {
    for (size_t n = 0; n < order_.size(); ++n) {
      const Lengths& l = requests_[order_[n]].lengths;
      std::vector<double> expected(static_cast<size_t>(int64_t{l.query} * args_.heads * shape_.group.v_head_dim));
      const double largest = attention_ref(args_, tables_.data() + table_rows_[n] * stride_, offsets_[n], l.query,
                                           l.context, expected.data());
      references_.emplace_back(std::move(expected), largest);
    }
  }

  static constexpr float kSentinel = 12352.0f;  // exact in all types
  static int64_t blocks_of(const AttentionGroup& group, Lengths l) {
    return (int64_t{l.context} + l.query + group.block_size - 1) / group.block_size;
  }
  static int64_t blocks_needed(const AttentionGroup& group, const std::vector<RequestData>& requests) {
    int64_t blocks = 3;
    for (const RequestData& r : requests) blocks += blocks_of(group, r.lengths);
    return blocks;
  }
  PhaseRange& range_of(Phase phase) {
    switch (phase) {
      case Phase::kDecode:
        return batch_.decode;
      case Phase::kExtend:
        return batch_.extend;
      default:
        return batch_.prefill;
    }
  }

  Shape shape_;
  std::vector<RequestData> requests_;
  Cache cache_;
  std::vector<size_t> order_;
  std::vector<int32_t> tables_, table_rows_, offsets_, kv_lens_;
  std::vector<int64_t> slots_;
  std::vector<std::byte> q_;
  int64_t stride_ = 0;
  AttentionBatch batch_;
  AttentionArgs args_;
  mutable bool touched_outside_ = false;
  mutable std::vector<std::pair<std::vector<double>, double>> references_;  // filled when first asked for
};

inline std::vector<RequestData> make_requests(const Shape& shape, const std::vector<Lengths>& lengths, uint32_t seed) {
  std::vector<RequestData> requests;
  for (const Lengths& l : lengths) requests.emplace_back(shape.group, l, seed++);
  return requests;
}

// Equal to the last bit, NaN included.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace quire::testing
