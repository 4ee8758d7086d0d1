#pragma once
// SwiGLU on the GPU (arXiv 2002.05202): y = silu(gate) * up, computed in f32.
#include <cstdint>

#include "gpu/stream.h"
#include "tensor/dtype.h"

namespace quire::gpu {

// gate_up [m, 2n]: gate in columns [0, n), up in [n, 2n); y [m, n]; both of `dtype`. n a multiple of 8.
void silu_mul(const void* gate_up, void* y, DType dtype, int64_t m, int64_t n, Stream& stream);

}  // namespace quire::gpu
