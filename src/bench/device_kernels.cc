#include "bench/device_kernels.h"

#include <array>
#include <cstring>
#include <numeric>

#include "base/cpu_isa.h"

namespace quire {
namespace {

// Plain loops and the compiler's own vectors of 16 bytes: what the baseline of the target has.
using Vector = float __attribute__((vector_size(16)));
constexpr int kVectors = 12, kVectorLanes = 4;
constexpr size_t kLanes = 32;

uint64_t read(const std::byte* data, size_t bytes) {
  constexpr size_t kWords = DeviceKernels::kLineBytes / sizeof(uint64_t);
  std::array<uint64_t, kWords> sums{};
  for (size_t at = 0; at < bytes; at += DeviceKernels::kLineBytes) {
    std::array<uint64_t, kWords> words;
    std::memcpy(words.data(), data + at, DeviceKernels::kLineBytes);
    for (size_t i = 0; i < kWords; ++i) sums[i] ^= words[i];
  }
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

void copy(const std::byte* source, std::byte* destination, size_t bytes) { std::memcpy(destination, source, bytes); }

float fma_f32(int64_t steps) {
  Vector sums[kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) sums[i] = Vector{} + static_cast<float>(i);  // equal sums would become one
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (Vector& sum : sums) sum = sum * 0.5f + 1.0f;
  }
#pragma GCC unroll 16
  for (int i = 1; i < kVectors; ++i) sums[0] += sums[i];
  return sums[0][0] + sums[0][1] + sums[0][2] + sums[0][3];
}

int32_t dot_int8(int64_t steps) {
  std::array<int32_t, kLanes> sums{};
  std::array<int8_t, kLanes> a{}, b{};
  a.fill(3);
  b.fill(1);
  for (int64_t step = 0; step < steps; ++step) {
    asm volatile("" : : "r"(a.data()) : "memory");  // else the product would be a constant
    for (size_t i = 0; i < kLanes; ++i) sums[i] += int32_t{a[i]} * b[i];
  }
  return std::accumulate(sums.begin(), sums.end(), 0);
}

}  // namespace

const DeviceKernels& device_kernels_scalar() {
  static constexpr DeviceKernels kernels{read,
                                         copy,
                                         copy,
                                         fma_f32,
                                         kVectors * kVectorLanes * 2.0,  // a multiply and an add
                                         dot_int8,
                                         kLanes * 2.0,
                                         "multiply and add"};
  return kernels;
}

const DeviceKernels& device_kernels() {
  switch (cpu_isa()) {
    case CpuIsa::kAvx512:
      return device_kernels_avx512();
    case CpuIsa::kAvx2:
      return device_kernels_avx2();
    case CpuIsa::kScalar:
      break;
  }
  return device_kernels_scalar();
}

}  // namespace quire
