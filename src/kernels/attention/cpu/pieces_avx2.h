#pragma once
// pieces_scalar.h in AVX2 registers.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/simd/avx2.h"
#include "tensor/dtype.h"

namespace quire {

struct Avx2Pieces {
  static constexpr int kAccumulators = 6;

  template <DType kDType>
  static void transpose_packed(const std::byte* src, Avx2Isa::F* out) {
    transpose<kDType>(src, 16, out);
  }

  template <DType kDType>
  static void transpose(const std::byte* src, int64_t stride, Avx2Isa::F* out) {
    if constexpr (kDType == DType::kF32) {
      __m256 a[4], b[4];
      transpose4(src, stride, a);
      transpose4(src + 8 * stride, stride, b);
      for (int e = 0; e < 4; ++e) out[e] = {a[e], b[e]};
    } else {
      transpose8<kDType>(src, stride, out);
    }
  }

 private:
  static __m256i load_pair(const std::byte* low, const std::byte* high) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first),
                                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
  }

  // 8 pieces of 4 floats.
  static void transpose4(const std::byte* src, int64_t stride, __m256* out) {
    const auto row = [&](int64_t i) {
      return _mm256_castsi256_ps(load_pair(src + i * stride, src + (i + 4) * stride));
    };
    const __m256 r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
    const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(r0, r1)),
                  high01 = _mm256_castps_pd(_mm256_unpackhi_ps(r0, r1));
    const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(r2, r3)),
                  high23 = _mm256_castps_pd(_mm256_unpackhi_ps(r2, r3));
    out[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23));
    out[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23));
    out[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23));
    out[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23));
  }

  // 16 pieces of 8 halves: pieces i and i + 8 share a register, one in each 128-bit lane.
  template <DType kDType>
  static void transpose8(const std::byte* src, int64_t stride, Avx2Isa::F* out) {
    __m256i r[8], pairs[8], quads[8];
#pragma GCC unroll 8
    for (int64_t i = 0; i < 8; ++i) r[i] = load_pair(src + i * stride, src + (i + 8) * stride);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      pairs[i] = _mm256_unpacklo_epi16(r[2 * i], r[2 * i + 1]);      // elements 0..3 of pieces 2i, 2i + 1
      pairs[i + 4] = _mm256_unpackhi_epi16(r[2 * i], r[2 * i + 1]);  // elements 4..7
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      quads[2 * i] = _mm256_unpacklo_epi32(pairs[2 * i], pairs[2 * i + 1]);
      quads[2 * i + 1] = _mm256_unpackhi_epi32(pairs[2 * i], pairs[2 * i + 1]);
    }
    // quads: elements 01 and 23 of pieces 0..3, 01 and 23 of pieces 4..7, 45 and 67 of 0..3, 45 and 67 of 4..7.
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int q = i / 2 * 4 + i % 2;
      out[2 * i] = widen<kDType>(_mm256_unpacklo_epi64(quads[q], quads[q + 2]));
      out[2 * i + 1] = widen<kDType>(_mm256_unpackhi_epi64(quads[q], quads[q + 2]));
    }
  }

  template <DType kDType>
  static Avx2Isa::F widen(__m256i halves) {
    const __m128i low = _mm256_castsi256_si128(halves), high = _mm256_extracti128_si256(halves, 1);
    if constexpr (kDType == DType::kBF16) {
      const auto one = [](__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); };
      return {one(low), one(high)};
    } else {
      return {_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)};
    }
  }
};

}  // namespace quire
