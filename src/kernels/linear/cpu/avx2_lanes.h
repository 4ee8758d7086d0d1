#pragma once
// Lanes of panel_kernel.h over AVX2. Half a panel is in one register: a tile then has room for more rows of x, which
// share the unpacking of codes.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/linear/packed_format.h"

namespace quire {

struct Avx2Lanes {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kFloatTile = 6, kFloatPanels = 1, kCodeTile = 4;

  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F load_f16(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static F load_bf16(const uint16_t* p) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
  }
  static F load_u8(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static F add(F x, F y) { return _mm256_add_ps(x, y); }
  static F mul(F x, F y) { return _mm256_mul_ps(x, y); }
  static F fma(F x, F y, F z) { return _mm256_fmadd_ps(x, y, z); }
  static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
  static I add_int(I x, I y) { return _mm256_add_epi32(x, y); }

  static I columns(const int8_t* x) {
    int32_t word;
    std::memcpy(&word, x, sizeof word);
    return _mm256_set1_epi32(word);
  }

  // A pair of products is at most 2 * 15 * 127, so the eight of a group fit an int16.
  template <int T>
  static void dot_u4(const uint8_t* codes, const int8_t* x, I* sums) {
    const __m256i mask = _mm256_set1_epi8(15);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 64 * p));
      const __m256i low = _mm256_and_si256(bytes, mask), high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        sums[t] = _mm256_add_epi16(sums[t], _mm256_maddubs_epi16(low, columns(x + kGroup * t + 8 * p)));
        sums[t] = _mm256_add_epi16(sums[t], _mm256_maddubs_epi16(high, columns(x + kGroup * t + 8 * p + 4)));
      }
    }
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm256_madd_epi16(sums[t], _mm256_set1_epi16(1));
  }

  // 16 in each byte whose bit is set.
  static __m256i fifth_of(const uint8_t* bits) {
    int32_t word;
    std::memcpy(&word, bits, sizeof word);
    const __m256i bytes = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i each = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
    const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), bytes), each);
    return _mm256_and_si256(_mm256_cmpeq_epi8(own, each), _mm256_set1_epi8(16));
  }

  // A pair of products is at most 2 * 31 * 127: four of them fit an int16, the eight of a group do not.
  template <int T>
  static void dot_u5(const uint8_t* codes, const uint8_t* fifth, const int8_t* x, I* sums) {
    const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 64 * p));
      const __m256i low = _mm256_or_si256(_mm256_and_si256(bytes, mask), fifth_of(fifth + 16 * p));
      const __m256i high =
          _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask), fifth_of(fifth + 16 * p + 8));
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, columns(x + kGroup * t + 8 * p)),
                                               _mm256_maddubs_epi16(high, columns(x + kGroup * t + 8 * p + 4)));
        sums[t] = _mm256_add_epi32(sums[t], _mm256_madd_epi16(pairs, ones));
      }
    }
  }

  // Bytes up to 255 would overflow a pair's int16. byte - 128 is signed, and |byte - 128| * (x with that sign) fits: 2
  // * 128 * 127 < 2^15.
  template <int T>
  static void dot_u8(const uint8_t* codes, const int8_t* x, const int32_t* /*offsets*/, I* sums) {
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 64 * p));
      const __m256i signed_codes = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128)),
                    magnitudes = _mm256_abs_epi8(signed_codes);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const __m256i pairs =
            _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(columns(x + kGroup * t + 4 * p), signed_codes));
        sums[t] = _mm256_add_epi32(sums[t], _mm256_madd_epi16(pairs, ones));
      }
    }
  }
};

}  // namespace quire
