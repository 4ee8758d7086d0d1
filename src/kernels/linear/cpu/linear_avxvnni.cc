// AVX2 with AVX-VNNI, whose one instruction replaces three in the dot products of codes.
#include "kernels/linear/cpu/avx2_lanes.h"
#include "kernels/linear/cpu/panel_kernel.h"
#include "kernels/simd/avx2.h"

namespace quire {
namespace {

struct AvxVnniLanes : Avx2Lanes {
  // Two vectors of codes, of columns `first` and of the four after them.
  template <int T>
  static void add_products(__m256i low, __m256i high, const int8_t* first, I* sums) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm256_dpbusd_avx_epi32(sums[t], low, columns(first + kGroup * t));
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm256_dpbusd_avx_epi32(sums[t], high, columns(first + kGroup * t + 4));
  }
  static __m256i load_codes(const uint8_t* codes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  }

  template <int T>
  static void dot_u4(const uint8_t* codes, const int8_t* x, I* sums) {
    const __m256i mask = _mm256_set1_epi8(15);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
      const __m256i bytes = load_codes(codes + 64 * p);
      add_products<T>(_mm256_and_si256(bytes, mask), _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask), x + 8 * p,
                      sums);
    }
  }

  template <int T>
  static void dot_u5(const uint8_t* codes, const uint8_t* fifth, const int8_t* x, I* sums) {
    const __m256i mask = _mm256_set1_epi8(15);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
      const __m256i bytes = load_codes(codes + 64 * p);
      const __m256i low = _mm256_and_si256(bytes, mask), high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
      add_products<T>(_mm256_or_si256(low, fifth_of(fifth + 16 * p)),
                      _mm256_or_si256(high, fifth_of(fifth + 16 * p + 8)), x + 8 * p, sums);
    }
  }

  template <int T>
  static void dot_u8(const uint8_t* codes, const int8_t* x, const int32_t* offsets, I* sums) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm256_set1_epi32(offsets[t]);
#pragma GCC unroll 2
    for (int p = 0; p < 4; p += 2) {
      add_products<T>(load_codes(codes + 64 * p), load_codes(codes + 64 * (p + 1)), x + 4 * p, sums);
    }
  }
};

}  // namespace

const LinearKernels& linear_kernels_avxvnni() { return linear_kernels_of<AvxVnniLanes, Avx2Isa>(); }

}  // namespace quire
