#pragma once
// exp over an Isa of simd/: x = n ln2 + r with |r| <= ln2/2, then the Taylor polynomial of degree 7 (remainder below
// 2^-27 relative) and 2^n. Relative error below 3e-7 from -70 up, absolute error below 2e-38 under that; 0 under -87.3,
// and above 88.0 the argument is clamped: no infinities, no subnormals.
#include <initializer_list>

namespace quire {

template <class Isa>
typename Isa::F simd_exp(typename Isa::F x) {
  using F = typename Isa::F;
  constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f,
                  kLn2Low = -2.12194440e-4f;  // high part has 10 bits: n * high is exact
  constexpr float kLowest = -87.3f, kHighest = 88.0f;
  // A comparison with NaN yields the second operand, in all instruction sets: this order keeps the NaN.
  const F clamped = Isa::min(Isa::set1(kHighest), Isa::max(Isa::set1(kLowest), x));
  const F n = Isa::round(Isa::mul(clamped, Isa::set1(kLog2e)));
  F r = Isa::fma(n, Isa::set1(-kLn2High), clamped);
  r = Isa::fma(n, Isa::set1(-kLn2Low), r);
  F p = Isa::set1(1.0f / 5040.0f);
  for (const float coefficient : {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f}) {
    p = Isa::fma(p, r, Isa::set1(coefficient));
  }
  // exp(-87.3) = 1.2e-38 is flushed so that masked keys weigh nothing.
  const F result = Isa::scale_by_pow2(p, n);
  return Isa::max(Isa::zero(), Isa::sub(result, Isa::set1(1.3e-38f)));
}

}  // namespace quire
