#pragma once
// vector_kernels.h written once over an Isa.
#include <cmath>

#include "kernels/simd/exp.h"
#include "kernels/simd/vector_kernels.h"
#include "tensor/dtype.h"

namespace quire {

template <class Isa>
struct VectorImpl {
  using F = typename Isa::F;
  static constexpr int64_t kLanes = 16;

  static void rms_norm(const float* x, const float* weight, float eps, float* y, int64_t n) {
    F squares = Isa::zero();
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const F v = Isa::load(x + i);
      squares = Isa::fma(v, v, squares);
    }
    float sum = Isa::sum(squares);
    for (; i < n; ++i) sum = std::fma(x[i], x[i], sum);
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
    for (i = 0; i + kLanes <= n; i += kLanes) {
      Isa::store(y + i, Isa::mul(Isa::mul(Isa::load(x + i), Isa::set1(scale)), Isa::load(weight + i)));
    }
    for (; i < n; ++i) y[i] = x[i] * scale * weight[i];
  }

  static F silu_lanes(F gate, F up) {
    const F one = Isa::set1(1.0f);
    const F denominator = Isa::add(one, simd_exp<Isa>(Isa::sub(Isa::zero(), gate)));
    return Isa::mul(Isa::div(gate, denominator), up);
  }

  static void silu_mul(const float* gate, const float* up, float* y, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) Isa::store(y + i, silu_lanes(Isa::load(gate + i), Isa::load(up + i)));
    if (i == n) return;
    float g[kLanes] = {}, u[kLanes] = {}, r[kLanes];
    for (int64_t j = i; j < n; ++j) {
      g[j - i] = gate[j];
      u[j - i] = up[j];
    }
    Isa::store(r, silu_lanes(Isa::load(g), Isa::load(u)));
    for (int64_t j = i; j < n; ++j) y[j] = r[j - i];
  }

  static void to_f16(const float* x, uint16_t* y, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) Isa::store_f16(y + i, Isa::load(x + i));
    for (; i < n; ++i) y[i] = f32_to_f16(x[i]);
  }

  static void to_bf16(const float* x, uint16_t* y, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) Isa::store_bf16(y + i, Isa::load(x + i));
    for (; i < n; ++i) y[i] = f32_to_bf16(x[i]);
  }

  static void rope_halves(float* x, const float* cos, const float* sin, int64_t half) {
    int64_t i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const F a = Isa::load(x + i), b = Isa::load(x + half + i), c = Isa::load(cos + i), s = Isa::load(sin + i);
      Isa::store(x + i, Isa::sub(Isa::mul(a, c), Isa::mul(b, s)));
      Isa::store(x + half + i, Isa::add(Isa::mul(b, c), Isa::mul(a, s)));
    }
    for (; i < half; ++i) rotate(x[i], x[half + i], cos[i], sin[i]);
  }

  static void rope_pairs(float* x, const float* cos, const float* sin, int64_t half) {
    constexpr int64_t kPairs = kLanes / 2;
    int64_t i = 0;
    for (; i + kPairs <= half; i += kPairs) {
      const F pairs = Isa::load(x + 2 * i);
      Isa::store(x + 2 * i, Isa::sub_add(Isa::mul(pairs, Isa::load_twice(cos + i)),
                                         Isa::mul(Isa::swap_pairs(pairs), Isa::load_twice(sin + i))));
    }
    for (; i < half; ++i) rotate(x[2 * i], x[2 * i + 1], cos[i], sin[i]);
  }

  static void rotate(float& a, float& b, float c, float s) {
    const float first = a * c - b * s;
    b = b * c + a * s;
    a = first;
  }

  static const VectorKernels& table() {
    static constexpr VectorKernels kTable{rms_norm, silu_mul, to_f16, to_bf16, rope_halves, rope_pairs};
    return kTable;
  }
};

}  // namespace quire
