#pragma once
// The ops that change the paged cache on the GPU; contracts as in kernels/kv_write/kv_write.h.
#include <cstdint>

#include "gpu/stream.h"
#include "kernels/kv_write/kv_write.h"
#include "tensor/head_rows.h"
#include "tensor/paged_kv.h"

namespace quire::gpu {

// All pointers are of device memory; `copies` and `blocks` too. k and v may be f32, f16 or bf16 with any strides;
// planes of the shuffle layout begin at a multiple of 16 bytes. Padding of K gets zeros.
void kv_write(const ConstHeadRows& k, const ConstHeadRows& v, const int64_t* slots, int64_t m, const PagedKv& kv,
              Stream& stream);

// Rotates q in place and K on its way to the cache (rotated in f32, rounded once to the cache's type; q rounded to its
// own type). qkv [m] rows of `row_stride` elements of `dtype`: `heads` query heads, then kv_heads heads of K, then of
// V, contiguous within a row. cos, sin [m, head_dim / 2]: kernels/rope/gpu/rope.h. One launch.
void rope_kv_write(void* qkv, DType dtype, int64_t row_stride, int64_t heads, const int64_t* slots, int64_t m,
                   const float* cos, const float* sin, bool interleaved, const PagedKv& kv, Stream& stream);

void kv_copy_blocks(const PagedKv& kv, const BlockCopy* copies, int64_t count, Stream& stream);
void kv_reset_blocks(const PagedKv& kv, const int32_t* blocks, int64_t count, Stream& stream);

}  // namespace quire::gpu
