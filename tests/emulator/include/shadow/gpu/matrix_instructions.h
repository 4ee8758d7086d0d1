#pragma once
// The emulator's twin of src/gpu/matrix_instructions.h: the same functions, by lanes that meet.
#include "emulator/matrix.h"
#include "gpu/numeric.h"
#include "gpu/wave.h"

namespace quire::gpu {

#if defined(__HIP_PLATFORM_AMD__)

// Those of gfx942.
#define QUIRE_F8_PRODUCTS 1
constexpr bool kHasF8Products = true;

template <class T>
EMULATOR_INLINE void multiply(T, float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
  const emulator::WideProductIn mine{{d[0], d[1], d[2], d[3]}, {a[0], a[1]}, {b[0], b[1]}};
  constexpr DType kType = DTypeOf<T>::value;
  constexpr auto* kProduct = kType == DType::kF16      ? &emulator::multiply_wide_f16
                             : kType == DType::kBF16   ? &emulator::multiply_wide_bf16
                             : kType == DType::kF8E4M3 ? &emulator::multiply_wide_fp8
                                                       : &emulator::multiply_wide_bf8;
  const auto sums = emulator::together<emulator::WideProductIn, float4>(mine, kProduct);
  d[0] = sums.x, d[1] = sums.y, d[2] = sums.z, d[3] = sums.w;
}

inline uint32_t to_fnuz(const float (&values)[4]) {
  uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) bytes |= emulator::to_fnuz_e4m3(values[i]) << (8 * i);
  return bytes;
}
inline void from_fnuz(uint32_t bytes, float (&values)[4]) {
  for (int i = 0; i < 4; ++i) values[i] = emulator::of_fnuz_e4m3(bytes >> (8 * i) & 0xff);
}

#else

constexpr bool kHasF8Products = false;

template <class T>
EMULATOR_INLINE void multiply(T, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const emulator::ProductIn mine{{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  constexpr auto* kProduct = DTypeOf<T>::value == DType::kF16 ? &emulator::multiply_f16 : &emulator::multiply_bf16;
  const auto sums = emulator::together<emulator::ProductIn, float4>(mine, kProduct);
  c[0] = sums.x, c[1] = sums.y, c[2] = sums.z, c[3] = sums.w;
}

#endif

}  // namespace quire::gpu
