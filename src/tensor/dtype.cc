#include "tensor/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace quire {
namespace {

uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Rounds to nearest even a magnitude in f32 to a float with `mantissa` bits whose smallest normal is 2^min_exponent;
// returns it with its exponent field counted from that of the subnormals, which is the pattern of an 8-bit float.
uint32_t round_to_small_float(float magnitude, int mantissa, int min_exponent) {
  const int shift = 23 - mantissa;
  if (magnitude < std::ldexp(1.0f, min_exponent)) {
    // Subnormal: whole units of 2^(min_exponent - mantissa).
    return static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, mantissa - min_exponent)));
  }
  const auto bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = bits + (1U << (shift - 1)) - 1 + (bits >> shift & 1);
  return (rounded >> shift) - (static_cast<uint32_t>(126 + min_exponent) << mantissa);
}

// GGUF blocks of 32: scale (and minimum) in f16, the fifth bits of 5-bit codes, one a bit, then the four lower ones:
// element i low and element i + 16 high in a byte.
void dequantize_32(const uint8_t* block, bool has_min, bool five_bits, float* dst) {
  const float scale = f16_to_f32(load_u16(block));
  const float min = has_min ? f16_to_f32(load_u16(block + 2)) : (five_bits ? -16.0f : -8.0f) * scale;
  const uint8_t* codes = block + (has_min ? 4 : 2);
  uint32_t fifth = 0;
  if (five_bits) {
    std::memcpy(&fifth, codes, sizeof fifth);
    codes += sizeof fifth;
  }
  for (int i = 0; i < 16; ++i) {
    const uint32_t first = (codes[i] & 15U) | (fifth >> i & 1) << 4, second = (codes[i] >> 4U) | (fifth >> (i + 16) & 1)
                                                                                                     << 4;
    dst[i] = scale * static_cast<float>(first) + min;
    dst[i + 16] = scale * static_cast<float>(second) + min;
  }
}

// 256 elements in groups of 32: f16 scale and minimum over all, of each group a 6-bit multiple of either, the fifth
// bits of 5-bit codes (group g in bit g of 32 bytes), then the four lower ones: groups 2i (low) and 2i + 1 (high) in 32
// bytes.
void dequantize_k(const uint8_t* block, bool five_bits, float* dst) {
  const float scale = f16_to_f32(load_u16(block)), min = f16_to_f32(load_u16(block + 2));
  const uint8_t* fifth = block + 16;
  const uint8_t* codes = block + (five_bits ? 48 : 16);
  for (int g = 0; g < 8; ++g) {
    const KScale multiples = k_scale(block + 4, g);
    const float of_group = scale * static_cast<float>(multiples.scale),
                min_of_group = min * static_cast<float>(multiples.min);
    for (int i = 0; i < 32; ++i) {
      uint32_t code = codes[g / 2 * 32 + i] >> (g % 2 * 4) & 15U;
      if (five_bits) code |= (fifth[i] >> g & 1U) << 4;
      dst[g * 32 + i] = of_group * static_cast<float>(code) - min_of_group;
    }
  }
}

void dequantize_q8_0(const uint8_t* block, float* dst) {
  const float scale = f16_to_f32(load_u16(block));
  for (int i = 0; i < 32; ++i) dst[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// 256 elements: 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales (one for 16 elements), one f16 scale
// over all.
void dequantize_q6_k(const uint8_t* block, float* dst) {
  const uint8_t* low = block;
  const uint8_t* high = block + 128;
  const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
  const float scale = f16_to_f32(load_u16(block + 208));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, column = i % 32, group = i / 16;
    const int nibble = (low[half * 64 + quarter % 2 * 32 + column] >> (quarter / 2 * 4)) & 15;
    const int bits = (high[half * 32 + column] >> (quarter * 2)) & 3;
    dst[i] = scale * static_cast<float>(scales[group]) * static_cast<float>((nibble | bits << 4) - 32);
  }
}

template <class Convert>
void convert_each(const void* src, size_t bytes_each, float* dst, int64_t n, Convert convert) {
  const auto* p = static_cast<const uint8_t*>(src);
  for (int64_t i = 0; i < n; ++i) dst[i] = convert(p + i * static_cast<int64_t>(bytes_each));
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E5M2:
      return "F8_E5M2";
    case DType::kI8:
      return "I8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kQ4_0:
      return "Q4_0";
    case DType::kQ4_1:
      return "Q4_1";
    case DType::kQ5_0:
      return "Q5_0";
    case DType::kQ5_1:
      return "Q5_1";
    case DType::kQ4_K:
      return "Q4_K";
    case DType::kQ5_K:
      return "Q5_K";
    case DType::kQ8_0:
      return "Q8_0";
    case DType::kQ6_K:
      return "Q6_K";
  }
  return "?";
}

int64_t block_elements(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
      return 32;
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return 256;
    default:
      return 1;
  }
}

int64_t block_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kI8:
      return 1;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kI64:
      return 8;
    case DType::kQ4_0:
      return 18;
    case DType::kQ4_1:
      return 20;
    case DType::kQ5_0:
      return 22;
    case DType::kQ5_1:
      return 24;
    case DType::kQ8_0:
      return 34;
    case DType::kQ4_K:
      return 144;
    case DType::kQ5_K:
      return 176;
    case DType::kQ6_K:
      return 210;
  }
  return 0;
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  // Shifted into place the value is 2^-112 of what it should be; the product is exact, subnormals included.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);   // NaN
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to 65536 or more
  if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 lets the float unit round to a multiple of 2^-24.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t round_to_even = 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (magnitude + round_to_even - 0x38000000) >> 13);
}

uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // keep NaN a NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float f8e4m3_to_f32(uint8_t bits) {
  const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  float magnitude;
  if (exponent == 15 && mantissa == 7) {
    magnitude = std::numeric_limits<float>::quiet_NaN();
  } else {
    magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  }
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

float f8e5m2_to_f32(uint8_t bits) { return f16_to_f32(static_cast<uint16_t>(bits << 8)); }

uint8_t f32_to_f8e4m3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::fabs(value);
  if (!std::isfinite(magnitude)) return sign | 0x7f;
  constexpr uint32_t kLargest = 0x7e;
  return sign | static_cast<uint8_t>(std::min(kLargest, round_to_small_float(magnitude, 3, -6)));
}

uint8_t f32_to_f8e5m2(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(magnitude)) return sign | 0x7f;
  if (std::isinf(magnitude)) return sign | 0x7c;
  constexpr uint32_t kLargest = 0x7b;
  return sign | static_cast<uint8_t>(std::min(kLargest, round_to_small_float(magnitude, 2, -14)));
}

KScale k_scale(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | packed[group - 4] >> 6 << 4, packed[group + 4] >> 4 | packed[group] >> 6 << 4};
}

void dequantize(DType dtype, const void* src, float* dst, int64_t n) {
  const auto* bytes = static_cast<const uint8_t*>(src);
  const auto each_block = [&](auto convert) {
    const int64_t elements = block_elements(dtype), size = block_bytes(dtype);
    for (int64_t i = 0; i < n / elements; ++i) convert(bytes + i * size, dst + i * elements);
  };
  switch (dtype) {
    case DType::kF32:
      std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      return convert_each(src, 2, dst, n, [](const uint8_t* p) { return f16_to_f32(load_u16(p)); });
    case DType::kBF16:
      return convert_each(src, 2, dst, n, [](const uint8_t* p) { return bf16_to_f32(load_u16(p)); });
    case DType::kF8E4M3:
      return convert_each(src, 1, dst, n, [](const uint8_t* p) { return f8e4m3_to_f32(*p); });
    case DType::kF8E5M2:
      return convert_each(src, 1, dst, n, [](const uint8_t* p) { return f8e5m2_to_f32(*p); });
    case DType::kI8:
      return convert_each(src, 1, dst, n, [](const uint8_t* p) { return static_cast<float>(static_cast<int8_t>(*p)); });
    case DType::kQ4_0:
      return each_block([](const uint8_t* block, float* out) { dequantize_32(block, false, false, out); });
    case DType::kQ4_1:
      return each_block([](const uint8_t* block, float* out) { dequantize_32(block, true, false, out); });
    case DType::kQ5_0:
      return each_block([](const uint8_t* block, float* out) { dequantize_32(block, false, true, out); });
    case DType::kQ5_1:
      return each_block([](const uint8_t* block, float* out) { dequantize_32(block, true, true, out); });
    case DType::kQ4_K:
      return each_block([](const uint8_t* block, float* out) { dequantize_k(block, false, out); });
    case DType::kQ5_K:
      return each_block([](const uint8_t* block, float* out) { dequantize_k(block, true, out); });
    case DType::kQ8_0:
      return each_block(dequantize_q8_0);
    case DType::kQ6_K:
      return each_block(dequantize_q6_k);
    case DType::kI32:
    case DType::kI64:
      break;
  }
  throw std::logic_error("dequantize: not a floating or quantized type");
}

}  // namespace quire
