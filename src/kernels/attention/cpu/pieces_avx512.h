#pragma once
// pieces_scalar.h in AVX-512 registers. Lane L of register j holds piece 4 L + j, so transposing four registers within
// their 128-bit lanes leaves the pieces in order.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace quire {

struct Avx512Pieces {
  static constexpr int kAccumulators = 24;

  // Floats need four loads then, not sixteen.
  template <DType kDType>
  [[gnu::always_inline]] static void transpose_packed(const std::byte* src, __m512* out) {
    if constexpr (kDType == DType::kF32) {
      const auto* pieces = reinterpret_cast<const float*>(src);
      const __m512 a = _mm512_loadu_ps(pieces), b = _mm512_loadu_ps(pieces + 16), c = _mm512_loadu_ps(pieces + 32),
                   d = _mm512_loadu_ps(pieces + 48);
      const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
      const __m512i second = _mm512_or_si512(first, _mm512_set1_epi32(2));
      const __m512 low01 = _mm512_permutex2var_ps(a, first, b), high01 = _mm512_permutex2var_ps(c, first, d);
      const __m512 low23 = _mm512_permutex2var_ps(a, second, b), high23 = _mm512_permutex2var_ps(c, second, d);
      out[0] = _mm512_shuffle_f32x4(low01, high01, 0x44);
      out[1] = _mm512_shuffle_f32x4(low01, high01, 0xee);
      out[2] = _mm512_shuffle_f32x4(low23, high23, 0x44);
      out[3] = _mm512_shuffle_f32x4(low23, high23, 0xee);
    } else {
      transpose<kDType>(src, 16, out);
    }
  }

  template <DType kDType>
  [[gnu::always_inline]] static void transpose(const std::byte* src, int64_t stride, __m512* out) {
    const __m512i r0 = load(src, stride), r1 = load(src + stride, stride), r2 = load(src + 2 * stride, stride),
                  r3 = load(src + 3 * stride, stride);
    if constexpr (kDType == DType::kF32) {
      const __m512i low01 = _mm512_unpacklo_epi32(r0, r1), high01 = _mm512_unpackhi_epi32(r0, r1);
      const __m512i low23 = _mm512_unpacklo_epi32(r2, r3), high23 = _mm512_unpackhi_epi32(r2, r3);
      out[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi64(low01, low23));
      out[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi64(low01, low23));
      out[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi64(high01, high23));
      out[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi64(high01, high23));
    } else {
      const __m512i low01 = _mm512_unpacklo_epi16(r0, r1), high01 = _mm512_unpackhi_epi16(r0, r1);
      const __m512i low23 = _mm512_unpacklo_epi16(r2, r3), high23 = _mm512_unpackhi_epi16(r2, r3);
      two<kDType>(_mm512_unpacklo_epi32(low01, low23), out);
      two<kDType>(_mm512_unpackhi_epi32(low01, low23), out + 2);
      two<kDType>(_mm512_unpacklo_epi32(high01, high23), out + 4);
      two<kDType>(_mm512_unpackhi_epi32(high01, high23), out + 6);
    }
  }

 private:
  // Pieces 0, 4, 8 and 12 from src on.
  static __m512i load(const std::byte* src, int64_t stride) {
    const auto piece = [&](int64_t i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i * stride)); };
    __m512i r = _mm512_castsi128_si512(piece(0));
    r = _mm512_mask_broadcast_i32x4(r, 0x00f0, piece(4));
    r = _mm512_mask_broadcast_i32x4(r, 0x0f00, piece(8));
    return _mm512_mask_broadcast_i32x4(r, 0xf000, piece(12));
  }

  // Each lane has an element of its four pieces in the lower half, the next element in the upper one.
  template <DType kDType>
  static void two(__m512i halves, __m512* out) {
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const __m512i sorted = _mm512_permutexvar_epi64(order, halves);
    out[0] = widen<kDType>(_mm512_castsi512_si256(sorted));
    out[1] = widen<kDType>(_mm512_extracti64x4_epi64(sorted, 1));
  }

  template <DType kDType>
  static __m512 widen(__m256i halves) {
    if constexpr (kDType == DType::kBF16) {
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    } else {
      return _mm512_cvtph_ps(halves);
    }
  }
};

}  // namespace quire
