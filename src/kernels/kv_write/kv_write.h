#pragma once
// The ops that change the paged cache: new K and V rows to their slots, copies of blocks, reset of blocks.
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "tensor/head_rows.h"
#include "tensor/paged_kv.h"

namespace quire {

// k: [m] rows of [kv_heads, head_dim], v: of [kv_heads, v_head_dim]. slots [m] = block * block_size + slot in block;
// -1 = write nothing. Values are rounded to nearest even in the cache's type. An 8-bit cache stores value / scale,
// saturated to the type's largest finite value (an infinity becomes fp8's infinity or NaN); with KvScaling::kTokenHead
// the scale is max|x| / (that value) and is written too, else it is read.
void kv_write(const ConstHeadRows& k, const ConstHeadRows& v, const int64_t* slots, int64_t m, const PagedKv& kv,
              ThreadPool& pool);

// The same for f32 rows that are not rotated yet: rotates q in place (`heads` heads) and K on its way to the cache, so
// that K is not stored twice. k is left as it was. cos, sin: kernels/rope/rope.h.
void rope_kv_write(float* q, int64_t ldq, int64_t heads, const float* k, int64_t ldk, const float* v, int64_t ldv,
                   const int64_t* slots, int64_t m, const float* cos, const float* sin, int64_t half, bool interleaved,
                   const PagedKv& kv, ThreadPool& pool);

struct BlockCopy {
  int32_t source = 0, destination = 0;
};
// Copies whole blocks, K, V and their scales, one after the other.
void kv_copy_blocks(const PagedKv& kv, std::span<const BlockCopy> copies);

// Zeroes whole blocks and their scales.
void kv_reset_blocks(const PagedKv& kv, std::span<const int32_t> blocks);

}  // namespace quire
