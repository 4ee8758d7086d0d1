#pragma once
// Sixteen lanes as two AVX2 registers; see scalar.h.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace quire {

struct Avx2Isa {
  struct F {
    __m256 a, b;
  };
  struct I {
    __m256i a, b;
  };
  struct B {
    __m256i a, b;
  };

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
  static void store_f16(uint16_t* p, F x) {
    auto* q = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(q, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
  }
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
  static F round(F x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.a, kNearest), _mm256_round_ps(x.b, kNearest)};
  }
  static F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
  static I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
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
  static int32_t sum_int(I x) {
    const __m256i s = _mm256_add_epi32(x.a, x.b);
    __m128i r = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    r = _mm_add_epi32(r, _mm_shuffle_epi32(r, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(r, _mm_shuffle_epi32(r, 0xb1)));
  }

  static I set1_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static I add_int(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
  static B load_bytes(const uint8_t* p) {
    const auto* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
  }
  static B low_nibbles(B x) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
  }
  static B high_nibbles(B x) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(_mm256_srli_epi16(x.a, 4), mask), _mm256_and_si256(_mm256_srli_epi16(x.b, 4), mask)};
  }
  // Two products of full bytes overflow int16, so the halves of a byte are multiplied apart.
  static I dot4(I acc, B w, const int8_t* x) {
    const __m256i xs = broadcast4(x), ones = _mm256_set1_epi16(1), sixteens = _mm256_set1_epi16(16);
    const B low = low_nibbles(w), high = high_nibbles(w);
    const auto lane = [&](__m256i sum, __m256i l, __m256i h) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(l, xs), ones));
      return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(h, xs), sixteens));
    };
    return {lane(acc.a, low.a, high.a), lane(acc.b, low.b, high.b)};
  }
  static I dot4_small(I acc, B w, const int8_t* x) {
    const __m256i xs = broadcast4(x), ones = _mm256_set1_epi16(1);
    return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(_mm256_maddubs_epi16(w.a, xs), ones)),
            _mm256_add_epi32(acc.b, _mm256_madd_epi16(_mm256_maddubs_epi16(w.b, xs), ones))};
  }

 private:
  static __m256i broadcast4(const int8_t* x) {
    int32_t word;
    std::memcpy(&word, x, sizeof word);
    return _mm256_set1_epi32(word);
  }
  static float sum8(__m256 x) {
    __m128 r = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    r = _mm_add_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_add_ss(r, _mm_shuffle_ps(r, r, 1)));
  }
};

}  // namespace quire
