#pragma once
// RMSNorm (arXiv 1910.07467): y = x / sqrt(mean(x^2) + eps) * weight, f32, the sum in a fixed order.
#include <cstdint>

#include "base/thread_pool.h"

namespace quire {

// x, y [m, n] (may be the same), weight [n].
void rms_norm(const float* x, const float* weight, float eps, float* y, int64_t m, int64_t n, ThreadPool& pool);

}  // namespace quire
