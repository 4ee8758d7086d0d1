#include "gpu/vector.h"
#include "kernels/embedding/gpu/embedding.h"

namespace quire::gpu {
namespace {

constexpr int kThreads = 128, kUnit = 4;

template <class T>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const T* __restrict__ table, int64_t vocab, const int32_t* __restrict__ ids, float* __restrict__ x,
                 int64_t m, int64_t n) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kUnit;
  if (column >= n) return;
  for (int64_t row = blockIdx.y; row < m; row += gridDim.y) {
    const int64_t id = ids[row];
    float values[kUnit] = {};
    if (id >= 0 && id < vocab) load_floats(table + id * n + column, values);
    store_floats(values, x + row * n + column);
  }
}

__global__ void __launch_bounds__(kThreads) gather_kernel(const uint4* __restrict__ x, const int32_t* __restrict__ rows,
                                                          uint4* __restrict__ y, int64_t m, int64_t row_units) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= row_units) return;
  for (int64_t row = blockIdx.y; row < m; row += gridDim.y) {
    y[row * row_units + column] = x[rows[row] * row_units + column];
  }
}

}  // namespace

void embed(const void* table, DType dtype, int64_t vocab, const int32_t* ids, float* x, int64_t m, int64_t n,
           Stream& stream) {
  if (m == 0 || n == 0) return;
  with_activation_type(dtype, [&](auto element) {
    using T = decltype(element);
    gpu::launch(stream, embed_kernel<T>, dim3(ceil_blocks(n, kThreads * kUnit), grid_rows(m)), dim3(kThreads), 0,
                static_cast<const T*>(table), vocab, ids, x, m, n);
  });
}

void gather_rows(const void* x, const int32_t* rows, void* y, int64_t m, int64_t row_bytes, Stream& stream) {
  if (m == 0 || row_bytes == 0) return;
  const int64_t units = row_bytes / static_cast<int64_t>(sizeof(uint4));
  gpu::launch(stream, gather_kernel, dim3(ceil_blocks(units, kThreads), grid_rows(m)), dim3(kThreads), 0,
              static_cast<const uint4*>(x), rows, static_cast<uint4*>(y), m, units);
}

}  // namespace quire::gpu
