#pragma once
// Element types on the device and their conversions, to the same bits as tensor/dtype.h. Included by GPU sources only.
#include <cstdint>

#include "gpu/runtime.h"
#include "tensor/dtype.h"

#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_fp16.h>
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

namespace quire::gpu {

// Storage of one element. float and int8_t stand for themselves.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct F8E4M3 {
  uint8_t bits;
};
struct F8E5M2 {
  uint8_t bits;
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<BF16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<F8E4M3> {
  static constexpr DType value = DType::kF8E4M3;
};
template <>
struct DTypeOf<F8E5M2> {
  static constexpr DType value = DType::kF8E5M2;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kI8;
};

__device__ inline float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(int8_t value) { return static_cast<float>(value); }
__device__ inline float to_float(BF16 value) { return bits_to_float(static_cast<uint32_t>(value.bits) << 16); }
__device__ inline float to_float(F16 value) { return __half2float(__ushort_as_half(value.bits)); }
// Half has the exponent of e5m2 and three more bits of mantissa.
__device__ inline float to_float(F8E5M2 value) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(value.bits << 8)));
}
// As a half with the exponent and mantissa moved into place, the value is 2^-8 of what it should be; only NaN differs.
__device__ inline float to_float(F8E4M3 value) {
  const uint32_t magnitude = value.bits & 0x7f, sign = static_cast<uint32_t>(value.bits & 0x80) << 8;
  if (magnitude == 0x7f) return bits_to_float(0x7fc00000);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(magnitude << 7 | sign))) * 256.0f;
}

// Rounds to nearest even, saturates at the largest finite value of 8-bit types (tensor/dtype.h).
template <class T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline F16 from_float<F16>(float value) {
  return {__half_as_ushort(__float2half_rn(value))};
}
template <>
__device__ inline BF16 from_float<BF16>(float value) {
#if defined(__HIP_PLATFORM_AMD__)
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
#else
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#endif
}

// Devices that convert to 8-bit floats themselves make the largest finite value of an infinity.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define QUIRE_HARDWARE_FP8 1
#else
#define QUIRE_HARDWARE_FP8 0
#endif

// Rounds a finite magnitude in f32 to a float with `kMantissa` bits whose smallest normal is 2^kMinExponent, as a bit
// pattern without sign.
template <int kMantissa, int kMinExponent>
__device__ inline uint32_t round_to_small_float(float magnitude) {
  constexpr int kShift = 23 - kMantissa;
  const uint32_t bits = __float_as_uint(magnitude);
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 + kMinExponent) << 23;
  if (bits < kSmallestNormal) {
    constexpr uint32_t kUnit = static_cast<uint32_t>(127 + kMantissa - kMinExponent)
                               << 23;  // 1 / spacing of subnormals
    return static_cast<uint32_t>(rintf(magnitude * bits_to_float(kUnit)));
  }
  const uint32_t rounded = bits + (1u << (kShift - 1)) - 1 + (bits >> kShift & 1);
  return (rounded >> kShift) - (static_cast<uint32_t>(126 + kMinExponent) << kMantissa);
}
template <>
__device__ inline F8E4M3 from_float<F8E4M3>(float value) {
#if QUIRE_HARDWARE_FP8
  if (fabsf(value) == bits_to_float(0x7f800000)) return {0x7f};
  return {static_cast<uint8_t>(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3))};
#else
  const uint32_t bits = __float_as_uint(value), sign = bits >> 31 << 7;
  const float magnitude = fabsf(value);
  if (!(magnitude < bits_to_float(0x7f800000))) return {static_cast<uint8_t>(sign | 0x7f)};
  return {static_cast<uint8_t>(sign | round_to_small_float<3, -6>(fminf(magnitude, 448.0f)))};
#endif
}
template <>
__device__ inline F8E5M2 from_float<F8E5M2>(float value) {
  const uint32_t bits = __float_as_uint(value), sign = bits >> 31 << 7;
  const float magnitude = fabsf(value);
#if QUIRE_HARDWARE_FP8
  if (magnitude == bits_to_float(0x7f800000)) return {static_cast<uint8_t>(sign | 0x7c)};
  return {static_cast<uint8_t>(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2))};
#else
  if (magnitude != magnitude) return {static_cast<uint8_t>(sign | 0x7f)};
  if (!(magnitude < bits_to_float(0x7f800000))) return {static_cast<uint8_t>(sign | 0x7c)};
  return {static_cast<uint8_t>(sign | round_to_small_float<2, -14>(fminf(magnitude, 57344.0f)))};
#endif
}

// As an 8-bit cache stores it: a NaN has no code, so it takes the largest.
template <>
__device__ inline int8_t from_float<int8_t>(float value) {
  return static_cast<int8_t>(value != value ? 127.0f : rintf(fminf(fmaxf(value, -127.0f), 127.0f)));
}

// The bits of two elements side by side, the first one lower: fewer instructions than two conversions.
template <class T>
__device__ inline uint32_t bits_of_pair(float first, float second) {
  if constexpr (sizeof(T) == 1) {
    return static_cast<uint8_t>(from_float<T>(first).bits) | static_cast<uint32_t>(from_float<T>(second).bits) << 8;
  } else {
    return from_float<T>(first).bits | static_cast<uint32_t>(from_float<T>(second).bits) << 16;
  }
}
template <>
__device__ inline uint32_t bits_of_pair<int8_t>(float first, float second) {
  return static_cast<uint8_t>(from_float<int8_t>(first)) |
         static_cast<uint32_t>(static_cast<uint8_t>(from_float<int8_t>(second))) << 8;
}
#if !defined(__HIP_PLATFORM_AMD__)
template <>
__device__ inline uint32_t bits_of_pair<F16>(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}
template <>
__device__ inline uint32_t bits_of_pair<BF16>(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}
#endif
#if QUIRE_HARDWARE_FP8
template <>
__device__ inline uint32_t bits_of_pair<F8E4M3>(float first, float second) {
  constexpr uint32_t kInfinity = 0x7f800000;
  if (fabsf(first) == bits_to_float(kInfinity)) first = bits_to_float(0x7fc00000);
  if (fabsf(second) == bits_to_float(kInfinity)) second = bits_to_float(0x7fc00000);
  return __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE, __NV_E4M3);
}
template <>
__device__ inline uint32_t bits_of_pair<F8E5M2>(float first, float second) {
  const float infinity = bits_to_float(0x7f800000);
  const uint32_t bits = __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE, __NV_E5M2);
  // One more than the largest finite value is infinity.
  return bits + (fabsf(first) == infinity ? 1u : 0u) + (fabsf(second) == infinity ? 0x100u : 0u);
}
#endif

// Calls `body` with a value of the element type that activations have; one of kF32, kF16, kBF16.
template <class Body>
void with_activation_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF32:
      return body(float{});
    case DType::kF16:
      return body(F16{});
    default:
      return body(BF16{});
  }
}

// The same for what a KV cache may hold.
template <class Body>
void with_kv_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF8E4M3:
      return body(F8E4M3{});
    case DType::kF8E5M2:
      return body(F8E5M2{});
    case DType::kI8:
      return body(int8_t{});
    default:
      return with_activation_type(dtype, body);
  }
}

}  // namespace quire::gpu
