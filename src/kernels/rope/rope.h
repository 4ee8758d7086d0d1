#pragma once
// Rotary position embedding (arXiv 2104.09864). The angles of a step are computed once and serve every layer.
#include <cstdint>

#include "base/thread_pool.h"

namespace quire {

// cos, sin [m, half] of positions[i] * inv_freq[j], each times `scale`; the products in double.
void rope_angles(const float* inv_freq, int64_t half, const int32_t* positions, int64_t m, double scale, float* cos,
                 float* sin, ThreadPool& pool);

// Rotates, in place, `heads` heads of 2 * half floats in each of m rows: x[i*ldx + h*2*half + d]. interleaved: pairs
// (2d, 2d+1), else (d, d + half).
void rope(float* x, int64_t ldx, int64_t heads, int64_t m, const float* cos, const float* sin, int64_t half,
          bool interleaved, ThreadPool& pool);

}  // namespace quire
