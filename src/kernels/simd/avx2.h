#pragma once
// Sixteen lanes as two AVX2 registers; see scalar.h.
#include <immintrin.h>

#include <cstdint>

namespace quire {

struct Avx2Isa {
  struct F {
    __m256 a, b;
  };
  struct I {
    __m256i a, b;
  };

  // The line of *p starts on its way to the L2 cache. Not the builtin: GCC 12 takes a function that does nothing else
  // for one without effect, and drops its calls.
  static void prefetch(const void* p) { asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p))); }

  static F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void store(float* p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
  }
  static F load_f16(const uint16_t* p) {
    const auto* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
  }
  static F load_bf16(const uint16_t* p) {
    const auto* q = reinterpret_cast<const __m128i*>(p);
    const auto widen = [](__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); };
    return {widen(_mm_loadu_si128(q)), widen(_mm_loadu_si128(q + 1))};
  }
  // The bits, moved into place in a half float, are 2^-8 of the value.
  static F load_f8e4m3(const uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i words = _mm256_cvtepu8_epi16(bytes);
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(words, _mm256_set1_epi16(0x80)), 8);
    const __m256i magnitude = _mm256_slli_epi16(_mm256_and_si256(words, _mm256_set1_epi16(0x7f)), 7);
    const __m256i halves = _mm256_or_si256(sign, magnitude);
    const __m128i nan = _mm_cmpeq_epi8(_mm_and_si128(bytes, _mm_set1_epi8(0x7f)), _mm_set1_epi8(0x7f));
    const auto widen = [](__m128i half, __m128i is_nan) {
      const __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
      return _mm256_blendv_ps(value, _mm256_set1_ps(__builtin_nanf("")),
                              _mm256_castsi256_ps(_mm256_cvtepi8_epi32(is_nan)));
    };
    return {widen(_mm256_castsi256_si128(halves), nan),
            widen(_mm256_extracti128_si256(halves, 1), _mm_srli_si128(nan, 8))};
  }
  static F load_f8e5m2(const uint8_t* p) {
    const __m256i words =
        _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 8);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(words)), _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1))};
  }
  static F load_i8(const int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
  }
  static void store_f16(uint16_t* p, F x) {
    auto* q = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(q, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_bf16(uint16_t* p, F x) {
    const auto narrow = [](__m256 half) {
      const __m256i bits = _mm256_castps_si256(half);
      const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
      const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));  // a NaN stays one
      const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(half, half, _CMP_UNORD_Q));
      return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    };
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(narrow(x.a), narrow(x.b)), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
  }
  static F load_twice(const float* p) {
    const __m256 x = _mm256_loadu_ps(p);
    return {_mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
            _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
  }
  static F swap_pairs(F x) { return {_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)}; }
  static F sub_add(F x, F y) { return {_mm256_addsub_ps(x.a, y.a), _mm256_addsub_ps(x.b, y.b)}; }
  static F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  static F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  static F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  static F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  static F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
  static F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  static F abs(F x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
  }
  static F select_less(F a, F b, F x, F y) {
    return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
            _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ))};
  }
  static F round(F x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.a, kNearest), _mm256_round_ps(x.b, kNearest)};
  }
  static F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
  static I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
  // x * 2^n for n in [-126, 127].
  static F scale_by_pow2(F x, F n) { return mul(x, pow2(to_int(n))); }
  static F pow2(I n) {
    const auto one = [](__m256i x) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(127)), 23));
    };
    return {one(n.a), one(n.b)};
  }
  static void store_int8(int8_t* p, I x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }

  static float sum(F x) { return sum8(_mm256_add_ps(x.a, x.b)); }
  static F sum16(const F* x) {
    float lanes[16];
    for (int i = 0; i < 16; ++i) lanes[i] = sum(x[i]);
    return load(lanes);
  }
  static float max_lane(F x) {
    const __m256 m = _mm256_max_ps(x.a, x.b);
    __m128 r = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    r = _mm_max_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_max_ss(r, _mm_shuffle_ps(r, r, 1)));
  }
  static float max_magnitude(F x, F y) {
    // Compared as integers, NaN is above infinity.
    const F u = abs(x), v = abs(y);
    const __m256i larger = _mm256_max_epi32(_mm256_max_epi32(_mm256_castps_si256(u.a), _mm256_castps_si256(u.b)),
                                            _mm256_max_epi32(_mm256_castps_si256(v.a), _mm256_castps_si256(v.b)));
    __m128i r = _mm_max_epi32(_mm256_castsi256_si128(larger), _mm256_extracti128_si256(larger, 1));
    r = _mm_max_epi32(r, _mm_shuffle_epi32(r, 0x4e));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(r, _mm_shuffle_epi32(r, 0xb1))));
  }
  static int32_t sum_int(I x) {
    const __m256i s = _mm256_add_epi32(x.a, x.b);
    __m128i r = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    r = _mm_add_epi32(r, _mm_shuffle_epi32(r, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(r, _mm_shuffle_epi32(r, 0xb1)));
  }

 private:
  static float sum8(__m256 x) {
    __m128 r = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    r = _mm_add_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_add_ss(r, _mm_shuffle_ps(r, r, 1)));
  }
};

}  // namespace quire
