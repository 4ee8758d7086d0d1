#include "kernels/norm/rms_norm.h"

#include "kernels/simd/vector_kernels.h"

namespace quire {

void rms_norm(const float* x, const float* weight, float eps, float* y, int64_t m, int64_t n, ThreadPool& pool) {
  const VectorKernels& kernels = vector_kernels();
  const auto rows = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) kernels.rms_norm(x + i * n, weight, eps, y + i * n, n);
  };
  pool.parallel_for_if_large(m, m * n, rows);
}

}  // namespace quire
