#pragma once
// RMSNorm on the GPU: y = x / sqrt(mean(x^2) + eps) * weight, computed in f32.
#include <cstdint>

#include "gpu/stream.h"
#include "tensor/dtype.h"

namespace quire::gpu {

// x [m, n] f32 (the residual stream), weight [n] f32, y [m, n] of `dtype` (kF32, kF16, kBF16). n a multiple of 8. A row
// is one block's, summed in an order that depends on n only.
void rms_norm(const float* x, const float* weight, float eps, void* y, DType dtype, int64_t m, int64_t n,
              Stream& stream);

}  // namespace quire::gpu
