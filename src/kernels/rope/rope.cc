#include "kernels/rope/rope.h"

#include <cmath>

namespace quire {

void rope_angles(const float* inv_freq, int64_t half, const int32_t* positions, int64_t m, float* cos, float* sin, ThreadPool& pool) {
  constexpr int64_t kCost = 32;  // a sine and a cosine in double, in units of a simple element
  pool.parallel_for_if_large(m, m * half * kCost, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < half; ++j) {
        const double angle = static_cast<double>(positions[i]) * static_cast<double>(inv_freq[j]);
        cos[i * half + j] = static_cast<float>(std::cos(angle));
        sin[i * half + j] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void rope(float* x, int64_t ldx, int64_t heads, int64_t m, const float* cos, const float* sin, int64_t half, bool interleaved,
          ThreadPool& pool) {
  const int64_t next = interleaved ? 1 : half, step = interleaved ? 2 : 1;  // partner and stride of a pair
  pool.parallel_for_if_large(m, m * heads * half * 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* c = cos + i * half;
      const float* s = sin + i * half;
      for (int64_t h = 0; h < heads; ++h) {
        float* p = x + i * ldx + h * 2 * half;
        for (int64_t j = 0; j < half; ++j) {
          const float a = p[j * step], b = p[j * step + next];
          p[j * step] = a * c[j] - b * s[j];
          p[j * step + next] = b * c[j] + a * s[j];
        }
      }
    }
  });
}

}  // namespace quire
