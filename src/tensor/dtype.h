#pragma once
// Element types. Block-quantized types are named as in GGUF; a block is the unit of storage.
#include <cstdint>
#include <string_view>

namespace quire {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI8,
  kI32,
  kI64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K
};

std::string_view dtype_name(DType dtype);
int64_t block_elements(DType dtype);  // 1 for plain types, 256 for Q4_K/Q5_K/Q6_K, 32 for the others
int64_t block_bytes(DType dtype);     // bytes of one block (of one element for plain types)
inline bool is_block_quantized(DType dtype) { return block_elements(dtype) > 1; }
// Bytes of `elements` elements (a whole number of blocks).
inline int64_t storage_bytes(DType dtype, int64_t elements) {
  return elements / block_elements(dtype) * block_bytes(dtype);
}

// IEEE half and bfloat16 as bits. Conversions to narrow types round to nearest even.
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
inline float bf16_to_f32(uint16_t bits) {
  union {
    uint32_t u;
    float f;
  } v{uint32_t{bits} << 16};
  return v.f;
}
uint16_t f32_to_bf16(float value);
// OCP 8-bit floats: e4m3 has no infinity and one NaN pattern, e5m2 follows IEEE. To narrow types finite values saturate
// (at 448 and 57,344), and infinity becomes e4m3's NaN.
float f8e4m3_to_f32(uint8_t bits);
uint8_t f32_to_f8e4m3(float value);
float f8e5m2_to_f32(uint8_t bits);
uint8_t f32_to_f8e5m2(float value);

// Of a group of 32 in a block of Q4_K or Q5_K: the 6-bit multiples of the block's scale and minimum, which 12 bytes
// hold for eight groups.
struct KScale {
  int scale, min;
};
KScale k_scale(const uint8_t* packed, int group);

// Dequantizes n elements (a whole number of blocks) of any type above but kI32 and kI64 into floats.
void dequantize(DType dtype, const void* src, float* dst, int64_t n);

}  // namespace quire
