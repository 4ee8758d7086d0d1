#include "gpu/vector.h"
#include "gpu/wave.h"
#include "kernels/norm/gpu/rms_norm.h"

namespace quire::gpu {
namespace {

constexpr int kUnit = 4;  // elements that a thread takes at a time: 16 bytes of x

__device__ inline float add_squares(const float (&x)[kUnit], float sum) {
#pragma unroll
  for (int i = 0; i < kUnit; ++i) sum = fmaf(x[i], x[i], sum);
  return sum;
}

template <class T>
__device__ inline void store_scaled(float (&x)[kUnit], const float (&weight)[kUnit], float scale, T* y) {
#pragma unroll
  for (int i = 0; i < kUnit; ++i) x[i] = x[i] * scale * weight[i];
  store_floats(x, y);
}

__device__ inline float inverse_root_mean(float sum, int n, float eps) {
  return 1.0f / sqrtf(sum / static_cast<float>(n) + eps);
}

// A row that fits in the registers of a block: x and the weight are read before anything waits.
template <class T, int kThreads, int kUnits>
__global__ void __launch_bounds__(kThreads)
    norm_row_in_registers(const float* __restrict__ x, const float* __restrict__ weight, float eps, T* __restrict__ y,
                          int n) {
  __shared__ float scratch[kThreads / kWave + 1];
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * n;
  float values[kUnits][kUnit], weights[kUnits][kUnit];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const int at = (u * kThreads + static_cast<int>(threadIdx.x)) * kUnit;
    if (at < n) {
      load_floats(x + row + at, values[u]);
      load_floats(weight + at, weights[u]);
    } else {
#pragma unroll
      for (int i = 0; i < kUnit; ++i) values[u][i] = 0;
    }
  }
  float sum = 0;
#pragma unroll
  for (int u = 0; u < kUnits; ++u) sum = add_squares(values[u], sum);
  const float scale = inverse_root_mean(block_sum<kThreads>(sum, scratch), n, eps);
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const int at = (u * kThreads + static_cast<int>(threadIdx.x)) * kUnit;
    if (at < n) store_scaled(values[u], weights[u], scale, y + row + at);
  }
}

// Any row: read twice.
template <class T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    norm_long_row(const float* __restrict__ x, const float* __restrict__ weight, float eps, T* __restrict__ y, int n) {
  __shared__ float scratch[kThreads / kWave + 1];
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * n;
  float values[kUnit], weights[kUnit], sum = 0;
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x) * kUnit; at < n; at += kThreads * kUnit) {
    load_floats(x + row + at, values);
    sum = add_squares(values, sum);
  }
  const float scale = inverse_root_mean(block_sum<kThreads>(sum, scratch), n, eps);
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x) * kUnit; at < n; at += kThreads * kUnit) {
    load_floats(x + row + at, values);
    load_floats(weight + at, weights);
    store_scaled(values, weights, scale, y + row + at);
  }
}

}  // namespace

void rms_norm(const float* x, const float* weight, float eps, void* y, DType dtype, int64_t m, int64_t n,
              Stream& stream) {
  if (m == 0) return;
  with_activation_type(dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [&](auto kernel, unsigned threads) {
      launch_overlapping(stream, kernel, dim3(static_cast<unsigned>(m)), dim3(threads), 1, 0, x, weight, eps,
                         static_cast<T*>(y), n);
    };
    if (n <= 512) return run(norm_row_in_registers<T, 128, 1>, 128);
    if (n <= 1024) return run(norm_row_in_registers<T, 256, 1>, 256);
    if (n <= 2048) return run(norm_row_in_registers<T, 256, 2>, 256);
    if (n <= 4096) return run(norm_row_in_registers<T, 512, 2>, 512);
    if (n <= 8192) return run(norm_row_in_registers<T, 1024, 2>, 1024);
    if (n <= 16384) return run(norm_row_in_registers<T, 1024, 4>, 1024);
    run(norm_long_row<T, 1024>, 1024);
  });
}

}  // namespace quire::gpu
