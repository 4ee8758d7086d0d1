#include "kernels/rope/rope.h"

#include <cmath>

#include "kernels/simd/vector_kernels.h"

namespace quire {

void rope_angles(const float* inv_freq, int64_t half, const int32_t* positions, int64_t m, double scale, float* cos,
                 float* sin, ThreadPool& pool) {
  constexpr int64_t kCost = 32;  // a sine and a cosine in double, in units of a simple element
  pool.parallel_for_if_large(m, m * half * kCost, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < half; ++j) {
        const double angle = static_cast<double>(positions[i]) * static_cast<double>(inv_freq[j]);
        cos[i * half + j] = static_cast<float>(scale * std::cos(angle));
        sin[i * half + j] = static_cast<float>(scale * std::sin(angle));
      }
    }
  });
}

void rope(float* x, int64_t ldx, int64_t heads, int64_t m, const float* cos, const float* sin, int64_t half,
          bool interleaved, ThreadPool& pool) {
  const VectorKernels& kernels = vector_kernels();
  const auto rotate = interleaved ? kernels.rope_pairs : kernels.rope_halves;
  pool.parallel_for_if_large(m, m * heads * half * 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < heads; ++h) rotate(x + i * ldx + h * 2 * half, cos + i * half, sin + i * half, half);
    }
  });
}

}  // namespace quire
