#pragma once
// The merge of merge.h over an Isa of kernels/simd; its step, which attention_kernel.h takes for its running states;
// and the end of a row: sink, division, conversion.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/attention/attention.h"
#include "kernels/simd/exp.h"

namespace quire {

template <class Isa>
struct MergeKernel {
  using F = typename Isa::F;
  static constexpr float kMinusInfinity = -__builtin_inff(), kLowest = -3.402823466e38f;

  // exp(x - max) where nothing is left of it if both are -inf.
  static F weight(F x, F max) { return simd_exp<Isa>(Isa::sub(x, Isa::max(max, Isa::set1(kLowest)))); }

  // Weights of two states, lane by lane, with the maximum and sum of the merged one. The second state's keys come
  // later.
  struct Step {
    F max, sum, first_weight, second_weight;
  };
  static Step step(F first_max, F first_sum, F second_max, F second_sum) {
    const F max = Isa::max(first_max, second_max);
    const F first_weight = weight(first_max, max), second_weight = weight(second_max, max);
    return {max, Isa::fma(second_sum, second_weight, Isa::mul(first_sum, first_weight)), first_weight, second_weight};
  }

  // into = into * first_weight + from * second_weight.
  static void combine(float* into, const float* from, int64_t width, float first_weight, float second_weight) {
    const F first = Isa::set1(first_weight), second = Isa::set1(second_weight);
    for (int64_t d = 0; d < width; d += 16) {
      Isa::store(into + d, Isa::fma(Isa::load(from + d), second, Isa::mul(Isa::load(into + d), first)));
    }
  }

  // Row `row` of out for one head, from the merged state of all its keys.
  static void write(const AttentionArgs& args, int64_t row, int64_t head, const float* values, float max, float sum) {
    float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
    if (args.sinks != nullptr) {
      const F sink = Isa::set1(args.sinks[head]), old_max = Isa::set1(max), new_max = Isa::max(sink, old_max);
      const float kept = lane0(weight(old_max, new_max));
      factor = kept / (sum * kept + lane0(weight(sink, new_max)));
    }
    const int64_t head_dim = args.kv.v_head_dim, at = row * args.out.row_stride + head * args.out.head_stride;
    if (args.out.dtype == DType::kF32) {
      float* out = static_cast<float*>(args.out.data) + at;
      int64_t d = 0;
      for (; d + 16 <= head_dim; d += 16) Isa::store(out + d, Isa::mul(Isa::load(values + d), Isa::set1(factor)));
      for (; d < head_dim; ++d) out[d] = values[d] * factor;
      return;
    }
    alignas(64) uint16_t narrow[kMaxHeadDim];
    for (int64_t d = 0; d < head_dim; d += 16) {
      const F x = Isa::mul(Isa::load(values + d), Isa::set1(factor));
      if (args.out.dtype == DType::kF16) {
        Isa::store_f16(narrow + d, x);
      } else {
        Isa::store_bf16(narrow + d, x);
      }
    }
    std::memcpy(static_cast<uint16_t*>(args.out.data) + at, narrow, static_cast<size_t>(head_dim) * sizeof(uint16_t));
  }

  static void merge_row(const AttentionArgs& args, int32_t row, int32_t head, const float* states, int32_t count) {
    const int64_t size = attention_state_floats(args.kv.v_head_dim), width = attention_width(args.kv.v_head_dim);
    alignas(64) float values[kMaxHeadDim];
    const Fold fold = merged<false>(states + head * size, args.heads * size, count, width, 0, width, values);
    write(args, row, head, values, fold.max, fold.sum);
  }

  static void merge(const float* states, int64_t stride, int32_t count, int32_t v_head_dim, float* out, float* lse) {
    alignas(64) float values[kMaxHeadDim];
    const int64_t width = attention_width(v_head_dim);
    for (int64_t first = 0; first < v_head_dim; first += kMaxHeadDim) {
      const int64_t columns = width - first < kMaxHeadDim ? width - first : kMaxHeadDim;
      const Fold fold = merged<true>(states, stride, count, width, first, columns, values);
      const float factor = fold.sum == 0.0f ? 0.0f : 1.0f / fold.sum;
      for (int64_t d = first; d < first + columns && d < v_head_dim; ++d) out[d] = values[d - first] * factor;
      if (lse != nullptr) *lse = fold.max + std::log(fold.sum);
    }
  }

 private:
  struct Fold {
    float max, sum;
  };

  // Merges states of `width` values; of those, [first, first + columns) go to `values`. kSkipEmpty: parts without keys
  // are left out, and need not have numbers in their memory. Without it the arithmetic is that of running states.
  template <bool kSkipEmpty>
  static Fold merged(const float* states, int64_t stride, int32_t count, int64_t width, int64_t first, int64_t columns,
                     float* values) {
    Fold fold{kMinusInfinity, 0.0f};
    for (int64_t d = 0; d < columns; ++d) values[d] = 0.0f;
    bool empty = true;
    for (int32_t i = 0; i < count; ++i) {
      const float* from = states + i * stride;
      const float from_max = from[width], from_sum = from[width + 1];
      if constexpr (kSkipEmpty) {
        if (std::isinf(from_max) && !std::isnan(from_sum)) continue;
      }
      if (empty) {
        std::memcpy(values, from + first, static_cast<size_t>(columns) * sizeof(float));
        fold = {from_max, from_sum};
        empty = false;
        continue;
      }
      const Step s = step(Isa::set1(fold.max), Isa::set1(fold.sum), Isa::set1(from_max), Isa::set1(from_sum));
      combine(values, from + first, columns, lane0(s.first_weight), lane0(s.second_weight));
      fold = {lane0(s.max), lane0(s.sum)};
    }
    return fold;
  }

  static float lane0(F x) {
    float lanes[16];
    Isa::store(lanes, x);
    return lanes[0];
  }
};

}  // namespace quire
