#include "gpu/vector.h"
#include "gpu/wave.h"
#include "kernels/activation/gpu/silu_mul.h"

namespace quire::gpu {
namespace {

constexpr int kThreads = 128, kUnit = 8;

// A thread has one unit of a row, or of every gridDim.y-th row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    silu_mul_kernel(const T* __restrict__ gate_up, T* __restrict__ y, int64_t m, int64_t n) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kUnit;
  if (column >= n) return;
  for (int64_t row = blockIdx.y; row < m; row += gridDim.y) {
    const T* source = gate_up + row * 2 * n + column;
    float gate[kUnit], up[kUnit];
    load_floats(source, gate);
    load_floats(source + n, up);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    store_floats(gate, y + row * n + column);
  }
}

}  // namespace

void silu_mul(const void* gate_up, void* y, DType dtype, int64_t m, int64_t n, Stream& stream) {
  if (m == 0 || n == 0) return;
  with_activation_type(dtype, [&](auto element) {
    using T = decltype(element);
    gpu::launch_early(stream, silu_mul_kernel<T>, dim3(ceil_blocks(n, kThreads * kUnit), grid_rows(m)), dim3(kThreads),
                      0, static_cast<const T*>(gate_up), static_cast<T*>(y), m, n);
  });
}

}  // namespace quire::gpu
