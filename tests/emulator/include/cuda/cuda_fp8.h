#pragma once
// 8-bit floats as in CUDA: two of them widened to halves.
#include "vendor/half.h"

using __nv_fp8x2_storage_t = uint16_t;
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
using __half2_raw = __half2;

namespace emulator {

inline __half half_of_fp8(unsigned bits, __nv_fp8_interpretation_t kind) {
  if (kind == __NV_E5M2) return {static_cast<uint16_t>(bits << 8)};
  const unsigned magnitude = bits & 0x7f, sign = (bits & 0x80) << 8;
  if (magnitude == 0x7f) return {0x7fff};
  const int exponent = static_cast<int>(magnitude >> 3), mantissa = static_cast<int>(magnitude & 7);
  const float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                    : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return {static_cast<uint16_t>(__float2half_rn(value).bits | sign)};
}

}  // namespace emulator

inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t pair, __nv_fp8_interpretation_t kind) {
  return {emulator::half_of_fp8(pair & 0xffu, kind), emulator::half_of_fp8(pair >> 8, kind)};
}
