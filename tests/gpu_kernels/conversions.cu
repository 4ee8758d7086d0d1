#include "gpu_kernels/conversions.h"

#include "gpu/numeric.h"

namespace quire::gpu {
namespace {

template <class T>
__global__ void widen_kernel(const T* source, float* destination, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) destination[i] = to_float(source[i]);
}

template <class T>
__global__ void narrow_kernel(const float* source, T* destination, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) destination[i] = from_float<T>(source[i]);
}

}  // namespace

void widen(DType dtype, const void* source, float* destination, int64_t n, Stream& stream) {
  with_kv_type(dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, widen_kernel<T>, dim3(static_cast<unsigned>((n + 127) / 128)), dim3(128), 0,
           static_cast<const T*>(source), destination, n);
  });
}

void narrow(DType dtype, const float* source, void* destination, int64_t n, Stream& stream) {
  with_kv_type(dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, narrow_kernel<T>, dim3(static_cast<unsigned>((n + 127) / 128)), dim3(128), 0, source,
           static_cast<T*>(destination), n);
  });
}

}  // namespace quire::gpu
