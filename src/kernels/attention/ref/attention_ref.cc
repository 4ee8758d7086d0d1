#include "kernels/attention/ref/attention_ref.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace quire {
namespace {

double element(const void* plane, DType dtype, int64_t offset) {
  float value;
  dequantize(dtype, static_cast<const std::byte*>(plane) + offset * block_bytes(dtype), &value, 1);
  return value;
}

double scale_of(const PagedKv& kv, const float* scales, int64_t block, int64_t slot, int64_t head) {
  return scales == nullptr ? 1.0 : scales[scale_index(kv, block, slot, head)];
}

// Keys and values of one KV head as they are stored, times their scales: [keys, head_dim], [keys, v_head_dim].
struct Dense {
  std::vector<double> k, v;

  Dense(const PagedKv& kv, const int32_t* block_table, int64_t head, int64_t keys) {
    const bool plain = kv.layout == KvLayout::kPlain;
    for (int64_t key = 0; key < keys; ++key) {
      const int64_t block = block_table[key / kv.block_size], slot = key % kv.block_size;
      const double k_scale = scale_of(kv, kv.k_scales, block, slot, head),
                   v_scale = scale_of(kv, kv.v_scales, block, slot, head);
      for (int64_t d = 0; d < kv.head_dim; ++d) {
        const int64_t at =
            plain ? PlainLayout::k(kv, block, slot, head, d) : ShuffleLayout::k(kv, block, slot, head, d);
        k.push_back(k_scale * element(kv.k, kv.dtype, at));
      }
      for (int64_t d = 0; d < kv.v_head_dim; ++d) {
        const int64_t at =
            plain ? PlainLayout::v(kv, block, slot, head, d) : ShuffleLayout::v(kv, block, slot, head, d);
        v.push_back(v_scale * element(kv.v, kv.dtype, at));
      }
    }
  }
};

void attend_row(const AttentionArgs& args, const Dense& dense, int64_t row, int64_t head, int64_t position,
                double* out) {
  const int64_t head_dim = args.kv.head_dim, v_head_dim = args.kv.v_head_dim;
  const int64_t oldest = args.window > 0 ? std::max<int64_t>(0, position - args.window + 1) : 0;
  std::vector<double> q, weights;
  for (int64_t d = 0; d < head_dim; ++d)
    q.push_back(element(args.q.data, args.q.dtype, row * args.q.row_stride + head * args.q.head_stride + d));
  for (int64_t key = oldest; key <= position; ++key) {
    const double* k = dense.k.data() + key * head_dim;
    double score = 0.0;
    for (int64_t d = 0; d < head_dim; ++d) score += q[static_cast<size_t>(d)] * k[d];
    score *= args.scale;
    if (args.soft_cap > 0.0f) score = args.soft_cap * std::tanh(score / args.soft_cap);
    if (args.alibi_slopes != nullptr) score += args.alibi_slopes[head] * static_cast<double>(key - position);
    weights.push_back(score);
  }
  double max = *std::max_element(weights.begin(), weights.end());
  if (args.sinks != nullptr) max = std::max<double>(max, args.sinks[head]);
  double sum = args.sinks != nullptr ? std::exp(args.sinks[head] - max) : 0.0;
  for (double& weight : weights) sum += weight = std::exp(weight - max);
  std::fill_n(out, v_head_dim, 0.0);
  for (int64_t key = oldest; key <= position; ++key) {
    const double weight = weights[static_cast<size_t>(key - oldest)] / sum;
    const double* v = dense.v.data() + key * v_head_dim;
    for (int64_t d = 0; d < v_head_dim; ++d) out[d] += weight * v[d];
  }
}

}  // namespace

double attention_ref(const AttentionArgs& args, const int32_t* block_table, int64_t first_row, int64_t rows,
                     int64_t first_position, double* out) {
  const int64_t share = args.heads / args.kv.kv_heads;
  double largest = 0.0;
  for (int64_t kv_head = 0; kv_head < args.kv.kv_heads; ++kv_head) {
    const Dense dense(args.kv, block_table, kv_head, first_position + rows);
    for (const double v : dense.v) largest = std::max(largest, std::abs(v));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t head = kv_head * share; head < (kv_head + 1) * share; ++head) {
        attend_row(args, dense, first_row + row, head, first_position + row,
                   out + (row * args.heads + head) * args.kv.v_head_dim);
      }
    }
  }
  return largest;
}

}  // namespace quire
