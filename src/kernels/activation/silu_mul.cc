#include "kernels/activation/silu_mul.h"

#include "kernels/simd/vector_kernels.h"

namespace quire {

void silu_mul(const float* gate_up, float* y, int64_t ldy, int64_t m, int64_t n, ThreadPool& pool) {
  const VectorKernels& kernels = vector_kernels();
  const auto rows = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      kernels.silu_mul(gate_up + i * 2 * n, gate_up + i * 2 * n + n, y + i * ldy, n);
  };
  pool.parallel_for_if_large(m, 2 * m * n, rows);
}

}  // namespace quire
