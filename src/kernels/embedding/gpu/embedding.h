#pragma once
// Rows of a matrix by index on the GPU: token embeddings, and the rows whose logits are wanted.
#include <cstdint>

#include "gpu/stream.h"
#include "tensor/dtype.h"

namespace quire::gpu {

// x[i] = table[ids[i]], as f32. table [vocab, n] of `dtype` (kF32, kF16, kBF16), n a multiple of 8, x [m, n]. ids [m]
// on the device; an id outside [0, vocab) gives a row of zeros.
void embed(const void* table, DType dtype, int64_t vocab, const int32_t* ids, float* x, int64_t m, int64_t n,
           Stream& stream);

// y[i] = x[rows[i]] for i < m; rows of `row_bytes` bytes, a multiple of 16. x and y don't overlap.
void gather_rows(const void* x, const int32_t* rows, void* y, int64_t m, int64_t row_bytes, Stream& stream);

}  // namespace quire::gpu
