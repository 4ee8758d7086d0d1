#include <immintrin.h>

#include <cstring>
#include <numeric>

#include "bench/device_kernels.h"

namespace quire {
namespace {

constexpr int kChains = 12;  // what 16 registers hold beside the operands

const __m256i* vectors(const std::byte* p) { return reinterpret_cast<const __m256i*>(p); }
__m256i* vectors(std::byte* p) { return reinterpret_cast<__m256i*>(p); }

uint64_t read(const std::byte* data, size_t bytes) {
  __m256i sums[8] = {};
  for (size_t at = 0; at < bytes; at += DeviceKernels::kLineBytes) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) sums[i] = _mm256_xor_si256(sums[i], _mm256_load_si256(vectors(data + at) + i));
  }
#pragma GCC unroll 8
  for (int i = 1; i < 8; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  uint64_t lanes[4];
  std::memcpy(lanes, sums, sizeof lanes);
  return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
}

void copy(const std::byte* source, std::byte* destination, size_t bytes) {
  for (size_t at = 0; at < bytes; at += DeviceKernels::kLineBytes) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      _mm256_store_si256(vectors(destination + at) + i, _mm256_load_si256(vectors(source + at) + i));
  }
}

void copy_streaming(const std::byte* source, std::byte* destination, size_t bytes) {
  for (size_t at = 0; at < bytes; at += DeviceKernels::kLineBytes) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      _mm256_stream_si256(vectors(destination + at) + i, _mm256_load_si256(vectors(source + at) + i));
  }
  _mm_sfence();
}

float fma_f32(int64_t steps) {
  __m256 sums[kChains];
#pragma GCC unroll 16
  for (__m256& sum : sums) {
    sum = _mm256_setzero_ps();
    asm volatile("" : "+x"(sum));  // else equal chains would become one
  }
  const __m256 factor = _mm256_set1_ps(0.5f), term = _mm256_set1_ps(1.0f);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, factor, term);
  }
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sums[0] = _mm256_add_ps(sums[0], sums[i]);
  float lanes[8];
  std::memcpy(lanes, sums, sizeof lanes);
  return std::accumulate(lanes, lanes + 8, 0.0f);
}

int32_t dot_int8(int64_t steps) {
  __m256i sums[kChains];
#pragma GCC unroll 16
  for (__m256i& sum : sums) {
    sum = _mm256_setzero_si256();
    asm volatile("" : "+x"(sum));  // else equal chains would become one
  }
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (__m256i& sum : sums) {
      asm volatile("" : "+x"(a));  // else one product would serve all sums
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  int32_t lanes[8];
  std::memcpy(lanes, sums, sizeof lanes);
  return std::accumulate(lanes, lanes + 8, 0);
}

}  // namespace

const DeviceKernels& device_kernels_avx2() {
  static constexpr DeviceKernels kernels{read,
                                         copy,
                                         copy_streaming,
                                         fma_f32,
                                         kChains * 8 * 2.0,  // lanes, a multiply and an add
                                         dot_int8,
                                         kChains * 32 * 2.0,
                                         "vpmaddubsw + vpmaddwd + vpaddd, 256 bits"};
  return kernels;
}

}  // namespace quire
