#pragma once
// Weights made or converted on the device.
#include <cstdint>

#include "gpu/stream.h"
#include "tensor/dtype.h"

namespace quire::gpu {

// Element i gets what dummy weights have (checkpoint/dummy.h) as element first + i of the tensor with this hash;
// `dtype` kF32, kF16 or kBF16, rounded to nearest even from f32.
void fill_dummy(void* weights, DType dtype, int64_t count, uint64_t tensor_hash, int64_t first, Stream& stream);

// dst[i] = src[i] converted; each kF32, kF16 or kBF16. They may be the same memory only if the types have one size.
void convert(const void* source, DType from, void* destination, DType to, int64_t count, Stream& stream);

}  // namespace quire::gpu
