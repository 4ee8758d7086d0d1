#pragma once
// Sixteen lanes as one AVX-512 register, with VNNI dot products; see scalar.h.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace quire {

struct Avx512Isa {
  using F = __m512;
  using I = __m512i;
  using B = __m512i;

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F load_f16(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static F load_bf16(const uint16_t* p) {
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
  }
  static void store_f16(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static F add(F x, F y) { return _mm512_add_ps(x, y); }
  static F sub(F x, F y) { return _mm512_sub_ps(x, y); }
  static F mul(F x, F y) { return _mm512_mul_ps(x, y); }
  static F div(F x, F y) { return _mm512_div_ps(x, y); }
  static F fma(F x, F y, F z) { return _mm512_fmadd_ps(x, y, z); }
  static F max(F x, F y) { return _mm512_max_ps(x, y); }
  static F min(F x, F y) { return _mm512_min_ps(x, y); }
  static F abs(F x) { return _mm512_abs_ps(x); }
  static F round(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
  static I to_int(F x) { return _mm512_cvtps_epi32(x); }
  static F pow2(I n) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23)); }
  static void store_int8(int8_t* p, I x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x)); }

  static float sum(F x) {
    const __m256 low = _mm512_castps512_ps256(x), high = _mm512_extractf32x8_ps(x, 1);
    const __m256 eight = _mm256_add_ps(low, high);
    __m128 r = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    r = _mm_add_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_add_ss(r, _mm_shuffle_ps(r, r, 1)));
  }
  // Each level of the tree adds for two registers at once and packs them into one.
  static F sum16(const F* x) {
    F eight[8], four[4], two[2];
    for (int i = 0; i < 8; ++i) {
      eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0x44), _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0xee));
    }
    for (int i = 0; i < 4; ++i) {
      const F a = eight[2 * i], b = eight[2 * i + 1];
      four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    for (int i = 0; i < 2; ++i) {
      const F a = four[2 * i], b = four[2 * i + 1];
      two[i] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
    }
    const F one = _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xdd));
    // Lane 4b + i holds the sum of x[4i + b].
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_ps(order, one);
  }
  static float max_lane(F x) { return _mm512_reduce_max_ps(x); }
  static int32_t sum_int(I x) { return _mm512_reduce_add_epi32(x); }

  static I set1_int(int32_t x) { return _mm512_set1_epi32(x); }
  static I add_int(I x, I y) { return _mm512_add_epi32(x, y); }
  static B load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static B low_nibbles(B x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
  static B high_nibbles(B x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15)); }
  static I dot4(I acc, B w, const int8_t* x) {
    int32_t word;
    std::memcpy(&word, x, sizeof word);
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(word));
  }
  static I dot4_small(I acc, B w, const int8_t* x) { return dot4(acc, w, x); }
};

}  // namespace quire
