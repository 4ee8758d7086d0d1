#pragma once
// tanh over an Isa of simd/, relative error below 4e-7: the Taylor polynomial of degree 15 up to 0.5 (remainder below
// 2^-26 relative), and 1 - 2 / (exp(2|x|) + 1) beyond.
#include <initializer_list>

#include "kernels/simd/exp.h"

namespace quire {

template <class Isa>
typename Isa::F simd_tanh(typename Isa::F x) {
  using F = typename Isa::F;
  const F square = Isa::mul(x, x), one = Isa::set1(1.0f), two = Isa::set1(2.0f);
  F p = Isa::set1(-929569.0f / 638512875.0f);
  for (const float coefficient : {21844.0f / 6081075.0f, -1382.0f / 155925.0f, 62.0f / 2835.0f, -17.0f / 315.0f,
                                  2.0f / 15.0f, -1.0f / 3.0f, 1.0f}) {
    p = Isa::fma(p, square, Isa::set1(coefficient));
  }
  const F magnitude = Isa::abs(x);
  const F large = Isa::sub(one, Isa::div(two, Isa::add(simd_exp<Isa>(Isa::mul(two, magnitude)), one)));
  const F signed_large = Isa::select_less(x, Isa::zero(), Isa::sub(Isa::zero(), large), large);
  return Isa::select_less(magnitude, Isa::set1(0.5f), Isa::mul(p, x), signed_large);
}

}  // namespace quire
