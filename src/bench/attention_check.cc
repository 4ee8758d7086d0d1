#include "bench/attention_check.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "bench/random_values.h"
#include "kernels/attention/ref/attention_ref.h"
#include "tensor/dtype.h"

namespace quire {
namespace {

// Elements that the reference touches for one token: it reads all keys up to it, and scores the visible ones.
int64_t token_cost(const AttentionGroup& group, int64_t position) {
  const int64_t keys = position + 1;
  const int64_t seen = group.window > 0 ? std::min<int64_t>(keys, group.window) : keys;
  return (keys * group.kv_heads + seen * group.heads) * (group.head_dim + group.v_head_dim);
}

float element(const ConstHeadRows& rows, int64_t row, int64_t head, int64_t dim) {
  const int64_t at = row * rows.row_stride + head * rows.head_stride + dim;
  switch (rows.dtype) {
    case DType::kF16:
      return f16_to_f32(static_cast<const uint16_t*>(rows.data)[at]);
    case DType::kBF16:
      return bf16_to_f32(static_cast<const uint16_t*>(rows.data)[at]);
    default:
      return static_cast<const float*>(rows.data)[at];
  }
}

// Half a unit in the last place of the output, and as much for weights that multiply values in the same type.
double narrow_rounding(DType dtype) {
  if (dtype == DType::kF32) return 0.0;
  return std::ldexp(2.0, dtype == DType::kF16 ? -11 : -8);
}

}  // namespace

AttentionCheck check_attention(const AttentionGroup& group, const StepBatch& batch, const ConstHeadRows& q,
                               const ConstHeadRows& out,
                               const std::function<CachedRequest(int64_t request)>& cached_request) {
  constexpr int64_t kBudget = 200'000'000;
  constexpr size_t kMostTokens = 64;
  AttentionArgs args;
  args.heads = group.heads;
  args.scale = group.scale;
  args.soft_cap = group.soft_cap;
  args.window = group.window;
  args.q = q;

  const int32_t tokens = batch.tokens();
  std::vector<int32_t> rows = {0, tokens - 1};
  std::mt19937 random(17);
  while (rows.size() < kMostTokens) rows.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(tokens)));

  const int64_t row_floats = int64_t{group.heads} * group.v_head_dim;
  std::vector<double> expected(static_cast<size_t>(row_floats));
  AttentionCheck check;
  double largest_value = 0.0;
  int64_t spent = 0;
  for (const int32_t row : rows) {
    const int64_t request = batch.request_of(row);
    const int64_t position =
        batch.kv_len(request) - (batch.view().query_offsets[static_cast<size_t>(request) + 1] - row);
    spent += token_cost(group, position);
    if (check.tokens >= 2 && spent > kBudget) break;
    const CachedRequest cached = cached_request(request);
    args.kv = cached.kv;
    largest_value = std::max(largest_value, attention_ref(args, cached.table, row, 1, position, expected.data()));
    for (int64_t i = 0; i < row_floats; ++i) {
      const float got = element(out, row, i / group.v_head_dim, i % group.v_head_dim);
      const double error = std::abs(got - expected[static_cast<size_t>(i)]);
      if (!(error <= check.largest_error)) check.largest_error = std::isnan(error) ? INFINITY : error;
    }
    ++check.tokens;
  }
  // |q| is 3 sqrt(d / 3) and |k| is sqrt(d / 3) in the mean. The error of a score grows with sqrt(d) roundings of their
  // product, and a soft cap adds that of tanh. The relative error of a weight is twice that of the scores; the rest is
  // for exp and the two sums over a partition.
  const double eps = std::ldexp(1.0, -24), d = group.head_dim;
  const double score = 2.0 * std::sqrt(d) * kLargestQuery * d / 3.0 * group.scale + 4.0 * group.soft_cap;
  check.bound = largest_value * (eps * (2.0 * score + 32.0) + narrow_rounding(out.dtype));
  return check;
}

}  // namespace quire
