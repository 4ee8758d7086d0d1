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

}  // namespace quire
