#pragma once
#include <cstdint>

#include "gpu/stream.h"
#include "tensor/dtype.h"

namespace quire::gpu {

// Element by element with gpu/numeric.h; the narrow type any that a KV cache may hold.
void widen(DType dtype, const void* source, float* destination, int64_t n, Stream& stream);
void narrow(DType dtype, const float* source, void* destination, int64_t n, Stream& stream);

}  // namespace quire::gpu
