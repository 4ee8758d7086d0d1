#include "gpu/vector.h"
#include "kernels/rope/gpu/rope.h"

namespace quire::gpu {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    angles_kernel(const float* __restrict__ inv_freq, int half, const int32_t* __restrict__ positions, int64_t count,
                  double scale, float* __restrict__ cos, float* __restrict__ sin) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const double angle = static_cast<double>(positions[i / half]) * static_cast<double>(inv_freq[i % half]);
  double sine, cosine;
  sincos(angle, &sine, &cosine);
  cos[i] = static_cast<float>(scale * cosine);
  sin[i] = static_cast<float>(scale * sine);
}

}  // namespace

void rope_angles(const float* inv_freq, int64_t half, const int32_t* positions, int64_t m, double scale, float* cos,
                 float* sin, Stream& stream) {
  if (m == 0 || half == 0) return;
  gpu::launch(stream, angles_kernel, dim3(ceil_blocks(m * half, kThreads)), dim3(kThreads), 0, inv_freq, half,
              positions, m * half, scale, cos, sin);
}

}  // namespace quire::gpu
