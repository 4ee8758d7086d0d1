#pragma once
// Row-wise kernels that need no packing, one table for each instruction set. n is any length; a tail is done in scalar
// code.
#include <cstdint>

namespace quire {

struct VectorKernels {
  // y = x / sqrt(mean(x^2) + eps) * weight. The sum: lane i takes elements i, i+16, ...; then the tree of scalar.h;
  // then the tail.
  void (*rms_norm)(const float* x, const float* weight, float eps, float* y, int64_t n);
  // y = gate / (1 + exp(-gate)) * up.
  void (*silu_mul)(const float* gate, const float* up, float* y, int64_t n);
  // Round to nearest even.
  void (*to_f16)(const float* x, uint16_t* y, int64_t n);
  void (*to_bf16)(const float* x, uint16_t* y, int64_t n);
  // Rotates one head x [2 * half] by the angles of one position, in place: pairs (i, i + half), or (2i, 2i + 1).
  void (*rope_halves)(float* x, const float* cos, const float* sin, int64_t half);
  void (*rope_pairs)(float* x, const float* cos, const float* sin, int64_t half);
};

const VectorKernels& vector_kernels();  // for cpu_isa()

const VectorKernels& vector_kernels_scalar();
const VectorKernels& vector_kernels_avx2();
const VectorKernels& vector_kernels_avx512();

}  // namespace quire
