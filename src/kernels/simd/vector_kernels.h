#pragma once
// Row-wise kernels that need no packing, one table for each instruction set. n is any length; a tail is done in scalar code.
#include <cstdint>

namespace quire {

struct VectorKernels {
  // y = x / sqrt(mean(x^2) + eps) * weight. The sum: lane i takes elements i, i+16, ...; then the tree of scalar.h; then the tail.
  void (*rms_norm)(const float* x, const float* weight, float eps, float* y, int64_t n);
  // y = gate / (1 + exp(-gate)) * up.
  void (*silu_mul)(const float* gate, const float* up, float* y, int64_t n);
  // Round to nearest even.
  void (*to_f16)(const float* x, uint16_t* y, int64_t n);
};

const VectorKernels& vector_kernels();  // for cpu_isa()

const VectorKernels& vector_kernels_scalar();
const VectorKernels& vector_kernels_avx2();
const VectorKernels& vector_kernels_avx512();

}  // namespace quire
