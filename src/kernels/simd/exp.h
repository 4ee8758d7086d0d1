#pragma once
// exp over an Isa of simd/: x = n ln2 + r with |r| <= ln2/2, then the polynomial 1 + r q(r) of degree 5 whose largest
// relative error is least (9.2e-8; fitted by iteratively reweighted least squares) and 2^n. With rounding the relative
// error is below 3e-7 from -70 up, the absolute one below 2e-38 under that; 0 under -87.3, and above 88.0 the argument
// is clamped: no infinities, no subnormals.
#include <initializer_list>

namespace quire {

// Inlined, so that a loop over it keeps its constants in registers.
template <class Isa>
[[gnu::always_inline]] inline typename Isa::F simd_exp(typename Isa::F x) {
  using F = typename Isa::F;
  constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f,
                  kLn2Low = -2.12194440e-4f;  // high part has 10 bits: n * high is exact
  constexpr float kLowest = -87.3f, kHighest = 88.0f;
  // A comparison with NaN yields the second operand, in all instruction sets: this order keeps the NaN.
  const F clamped = Isa::min(Isa::set1(kHighest), Isa::max(Isa::set1(kLowest), x));
  const F n = Isa::round(Isa::mul(clamped, Isa::set1(kLog2e)));
  F r = Isa::fma(n, Isa::set1(-kLn2High), clamped);
  r = Isa::fma(n, Isa::set1(-kLn2Low), r);
  F p = Isa::set1(0.00829027220606804f);
  for (const float coefficient :
       {0.04189816117286682f, 0.1666763871908188f, 0.4999914765357971f, 0.9999997019767761f, 1.0f}) {
    p = Isa::fma(p, r, Isa::set1(coefficient));
  }
  // exp(-87.3) = 1.2e-38 is flushed so that masked keys weigh nothing.
  const F result = Isa::scale_by_pow2(p, n);
  return Isa::max(Isa::zero(), Isa::sub(result, Isa::set1(1.3e-38f)));
}

// exp of kCount vectors of arguments that are 0 or less, in place; under -86.9 they count as that, so nothing is below
// 1.8e-38. The same polynomial; relative error below 3e-7 from -30 up, 4e-7 under that. Step by step for all vectors:
// one vector's steps wait for each other, and processors do not look far enough ahead to overlap them by themselves.
template <class Isa, int kCount>
[[gnu::always_inline]] inline void simd_exp_falling(typename Isa::F* x) {
  using F = typename Isa::F;
  constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147180f;
  constexpr float kLowest = -86.9f;          // the result is a normal number
  constexpr float kToInteger = 12582912.0f;  // 3 * 2^22: adding it leaves no bits for fractions
  F n[kCount], p[kCount];
  const auto step = [](auto fn) {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) fn(i);
  };
  step([&](int i) { x[i] = Isa::max(Isa::set1(kLowest), x[i]); });
  step([&](int i) { n[i] = Isa::fma(x[i], Isa::set1(kLog2e), Isa::set1(kToInteger)); });
  step([&](int i) { n[i] = Isa::sub(n[i], Isa::set1(kToInteger)); });
  step([&](int i) { x[i] = Isa::fma(n[i], Isa::set1(-kLn2), x[i]); });
  const auto next = [&](float coefficient) {
    step([&](int i) { p[i] = Isa::fma(p[i], x[i], Isa::set1(coefficient)); });
  };
  step([&](int i) { p[i] = Isa::set1(0.00829027220606804f); });
  next(0.04189816117286682f);
  next(0.1666763871908188f);
  next(0.4999914765357971f);
  next(0.9999997019767761f);
  next(1.0f);
  step([&](int i) { x[i] = Isa::scale_by_pow2(p[i], n[i]); });
}

}  // namespace quire
