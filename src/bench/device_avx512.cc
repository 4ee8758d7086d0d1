#include <immintrin.h>

#include "bench/device_kernels.h"

namespace quire {
namespace {

constexpr int kChains = 16;  // two units of four cycles need eight; more hide what else the loop does

const __m512i* vectors(const std::byte* p) { return reinterpret_cast<const __m512i*>(p); }
__m512i* vectors(std::byte* p) { return reinterpret_cast<__m512i*>(p); }

uint64_t read(const std::byte* data, size_t bytes) {
  __m512i sums[4] = {};
  for (size_t at = 0; at < bytes; at += DeviceKernels::kLineBytes) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sums[i] = _mm512_xor_si512(sums[i], _mm512_load_si512(vectors(data + at) + i));
  }
  const __m512i all = _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(all));
}

void copy(const std::byte* source, std::byte* destination, size_t bytes) {
  for (size_t at = 0; at < bytes; at += DeviceKernels::kLineBytes) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      _mm512_store_si512(vectors(destination + at) + i, _mm512_load_si512(vectors(source + at) + i));
  }
}

void copy_streaming(const std::byte* source, std::byte* destination, size_t bytes) {
  for (size_t at = 0; at < bytes; at += DeviceKernels::kLineBytes) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      _mm512_stream_si512(vectors(destination + at) + i, _mm512_load_si512(vectors(source + at) + i));
  }
  _mm_sfence();
}

float fma_f32(int64_t steps) {
  __m512 sums[kChains];
#pragma GCC unroll 16
  for (__m512& sum : sums) {
    sum = _mm512_setzero_ps();
    asm volatile("" : "+v"(sum));  // else equal chains would become one
  }
  const __m512 factor = _mm512_set1_ps(0.5f), term = _mm512_set1_ps(1.0f);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, factor, term);
  }
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_reduce_add_ps(sums[0]);
}

int32_t dot_int8(int64_t steps) {
  __m512i sums[kChains];
#pragma GCC unroll 16
  for (__m512i& sum : sums) {
    sum = _mm512_setzero_si512();
    asm volatile("" : "+v"(sum));  // else equal chains would become one
  }
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
  }
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  return _mm512_reduce_add_epi32(sums[0]);
}

}  // namespace

const DeviceKernels& device_kernels_avx512() {
  static constexpr DeviceKernels kernels{read,
                                         copy,
                                         copy_streaming,
                                         fma_f32,
                                         kChains * 16 * 2.0,  // lanes, a multiply and an add
                                         dot_int8,
                                         kChains * 64 * 2.0,
                                         "vpdpbusd, 512 bits"};
  return kernels;
}

}  // namespace quire
