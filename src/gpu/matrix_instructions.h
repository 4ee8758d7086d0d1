#pragma once
// The matrix instructions of both vendors as functions of a whole wave, and where their operands lie. Nothing else in
// the project knows these layouts but gpu/matrix.h, which makes one view of them. Included by GPU sources only.
//
// AMD, CDNA2 (gfx90a) and CDNA3 (gfx942): D[16, 16] += A[16, K] * B[K, 16] in f32. Lane l of 64 has, as AMD's matrix
// instruction calculator says (github.com/ROCm/amd_matrix_instruction_calculator, --detail-instruction):
//
// - of A and B with K = 16 (v_mfma_f32_16x16x16f16 and v_mfma_f32_16x16x16bf16_1k, called v_mfma_f32_16x16x16_f16 and
//   _bf16 on gfx942) four elements: A[l % 16, 4 (l / 16) + e] and B[4 (l / 16) + e, l % 16], e = 0 ... 3
// - of A and B with K = 32 (gfx942: v_mfma_f32_16x16x32_fp8_fp8, _bf8_fp8) eight: A[l % 16, 8 (l / 16) + e] and
//   B[8 (l / 16) + e, l % 16], e = 0 ... 7
// - of D four: D[4 (l / 16) + e, l % 16], e = 0 ... 3, one in a register
//
// Elements lie one after another from the lowest bits of the first register on: two of 16 bits in a register, four
// of 8.
//
// CDNA3 reads 8-bit floats as the "fnuz" kind (fp8: e4m3 with a bias of 8, bf8: e5m2 with a bias of 16): every code
// but 0x80 is a finite number, and 0x80, which elsewhere is -0, is NaN. What a cache holds are OCP's e4m3 (bias 7) and
// e5m2 (bias 15). So the same bits mean exactly half as much to the instruction, with three exceptions: -0, which has
// to become 0; and OCP's NaN (0x7f and 0xff of e4m3, from 0x7d on of e5m2) and infinities (0x7c of e5m2), which would
// be taken for numbers. ocp_as_fnuz() (gpu/matrix.h) mends all of them; infinities become NaN.
//
// CDNA2 takes subnormal 16-bit inputs for 0 (MIOpen's documentation, "MI200 MFMA behavior specifics"): weights in f16
// are kept away from there.
//
// NVIDIA, from compute capability 8.0 on: mma.sync.m16n8k16, c[16, 8] += a[16, 16] * b[16, 8] in f32 (PTX ISA, "Matrix
// fragments for mma.m16n8k16"). With g = lane / 4 and t = 2 * (lane % 4): a = (g, t), (g + 8, t), (g, t + 8), (g + 8, t
// + 8), each with the next column; b = rows t and t + 8, each with the next, of column g; c = (g, t), (g, t + 1), (g +
// 8, t), (g + 8, t + 1).
#include <cstdint>

#include "gpu/numeric.h"
#include "gpu/wave.h"

namespace quire::gpu {

// Whether kF8 products run on bytes; where they don't, 8-bit elements are widened before. Device code only: the host
// compiles for more architectures than one.
#if defined(__gfx942__)
#define QUIRE_F8_PRODUCTS 1
constexpr bool kHasF8Products = true;
#else
constexpr bool kHasF8Products = false;
#endif

#if defined(__HIP_PLATFORM_AMD__)

using MatrixSums = float __attribute__((ext_vector_type(4)));
using MatrixHalves = _Float16 __attribute__((ext_vector_type(4)));
using MatrixShorts = short __attribute__((ext_vector_type(4)));

template <class To>
__device__ inline To operand(const uint32_t (&words)[2]) {
  return __builtin_bit_cast(To, uint64_t{words[1]} << 32 | words[0]);
}
__device__ inline MatrixSums load_sums(const float (&d)[4]) { return {d[0], d[1], d[2], d[3]}; }
__device__ inline void store_sums(float (&d)[4], MatrixSums sums) {
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] = sums[i];
}

// d[16, 16] += a[16, 16] * b[16, 16].
__device__ inline void multiply(F16, float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
  store_sums(d, __builtin_amdgcn_mfma_f32_16x16x16f16(operand<MatrixHalves>(a), operand<MatrixHalves>(b), load_sums(d),
                                                      0, 0, 0));
}
__device__ inline void multiply(BF16, float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
  store_sums(d, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(operand<MatrixShorts>(a), operand<MatrixShorts>(b),
                                                          load_sums(d), 0, 0, 0));
}

#if defined(QUIRE_F8_PRODUCTS)
// d[16, 16] += a[16, 32] * b[32, 16] of fnuz bytes; b is of e4m3.
__device__ inline void multiply(F8E4M3, float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
  store_sums(
      d, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(operand<int64_t>(a), operand<int64_t>(b), load_sums(d), 0, 0, 0));
}
__device__ inline void multiply(F8E5M2, float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
  store_sums(
      d, __builtin_amdgcn_mfma_f32_16x16x32_bf8_fp8(operand<int64_t>(a), operand<int64_t>(b), load_sums(d), 0, 0, 0));
}

// Four floats of magnitudes below 240 rounded to fnuz e4m3, the first in the lowest byte; and the values of such bytes.
__device__ inline uint32_t to_fnuz(const float (&values)[4]) {
  const int low = __builtin_amdgcn_cvt_pk_fp8_f32(values[0], values[1], 0, false);
  return static_cast<uint32_t>(__builtin_amdgcn_cvt_pk_fp8_f32(values[2], values[3], low, true));
}
__device__ inline void from_fnuz(uint32_t bytes, float (&values)[4]) {
  const auto low = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(bytes), false);
  const auto high = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(bytes), true);
  values[0] = low[0], values[1] = low[1], values[2] = high[0], values[3] = high[1];
}
#endif

#else

// c[16, 8] += a[16, 16] * b[16, 8].
__device__ inline void multiply(F16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply(BF16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif

}  // namespace quire::gpu
