#include <cstring>

#include "kernels/linear/cpu/panel_kernel.h"
#include "kernels/simd/avx512.h"

namespace quire {
namespace {

struct Avx512Lanes : Avx512Isa {
  static constexpr int kLanes = 16;
  static constexpr int kFloatTile = 8, kFloatPanels = 2, kCodeTile = 8;

  static I add_int(I x, I y) { return _mm512_add_epi32(x, y); }
  static F load_u8(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static I columns(const int8_t* x) {
    int32_t word;
    std::memcpy(&word, x, sizeof word);
    return _mm512_set1_epi32(word);
  }

  template <int T>
  static void dot_u4(const uint8_t* codes, const int8_t* x, I* sums) {
    const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
      const __m512i bytes = _mm512_loadu_si512(codes + 64 * p);
      const __m512i low = _mm512_and_si512(bytes, mask), high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) sums[t] = _mm512_dpbusd_epi32(sums[t], low, columns(x + kGroup * t + 8 * p));
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) sums[t] = _mm512_dpbusd_epi32(sums[t], high, columns(x + kGroup * t + 8 * p + 4));
    }
  }

  template <int T>
  static void dot_u5(const uint8_t* codes, const uint8_t* fifth, const int8_t* x, I* sums) {
    const __m512i mask = _mm512_set1_epi8(15), sixteen = _mm512_set1_epi8(16);
    uint64_t bits[8];
    std::memcpy(bits, fifth, sizeof bits);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
      const __m512i bytes = _mm512_loadu_si512(codes + 64 * p);
      __m512i low = _mm512_and_si512(bytes, mask), high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
      low = _mm512_mask_add_epi8(low, bits[2 * p], low, sixteen);
      high = _mm512_mask_add_epi8(high, bits[2 * p + 1], high, sixteen);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) sums[t] = _mm512_dpbusd_epi32(sums[t], low, columns(x + kGroup * t + 8 * p));
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) sums[t] = _mm512_dpbusd_epi32(sums[t], high, columns(x + kGroup * t + 8 * p + 4));
    }
  }

  template <int T>
  static void dot_u8(const uint8_t* codes, const int8_t* x, const int32_t* offsets, I* sums) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm512_set1_epi32(offsets[t]);
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
      const __m512i bytes = _mm512_loadu_si512(codes + 64 * p);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) sums[t] = _mm512_dpbusd_epi32(sums[t], bytes, columns(x + kGroup * t + 4 * p));
    }
  }
};

}  // namespace

const LinearKernels& linear_kernels_avx512() { return linear_kernels_of<Avx512Lanes, Avx512Isa>(); }

}  // namespace quire
