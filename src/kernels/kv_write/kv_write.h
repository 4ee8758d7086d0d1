#pragma once
// Writes new K and V rows to their slots of the paged cache, converting to its dtype and layout. Slot -1 = write
// nothing.
#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/paged_kv.h"

namespace quire {

// k, v: row i at k + i*ldk, [kv_heads, head_dim] floats. slots [m] = block * block_size + offset.
void kv_write(const float* k, int64_t ldk, const float* v, int64_t ldv, const int64_t* slots, int64_t m,
              const PagedKv& kv, ThreadPool& pool);

// Copies whole blocks (source, destination) within the cache.
void kv_copy_block(const PagedKv& kv, int64_t source, int64_t destination);

}  // namespace quire
