#pragma once
// The paged KV cache of one layer as its kernels see it, and the address functions of its two layouts (design.md
// section 4.7).
//   plain   K, V [blocks, block_size, kv_heads, head_dim]
//   shuffle K [blocks, kv_heads, head_dim/x, block_size, x], V [blocks, kv_heads, block_size/x, head_dim, x], x = 16 /
//   element size
// Offsets are 64-bit from the block table on.
#include <cstdint>

#include "tensor/dtype.h"

namespace quire {

enum class KvLayout : uint8_t { kPlain, kShuffle };

// Elements in one 16-byte pack of the shuffle layout.
constexpr int64_t shuffle_pack(int64_t element_size) { return 16 / element_size; }

struct PagedKv {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::kF32;  // kF32, kF16, kBF16
  KvLayout layout = KvLayout::kPlain;
  int32_t block_size = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int64_t blocks = 0;
};

// Element offsets of (block, slot in block, head, dim).
struct PlainLayout {
  static int64_t k(const PagedKv& kv, int64_t block, int64_t slot, int64_t head, int64_t dim) {
    return ((block * kv.block_size + slot) * kv.kv_heads + head) * kv.head_dim + dim;
  }
  static int64_t v(const PagedKv& kv, int64_t block, int64_t slot, int64_t head, int64_t dim) {
    return k(kv, block, slot, head, dim);
  }
};

struct ShuffleLayout {
  static int64_t k(const PagedKv& kv, int64_t block, int64_t slot, int64_t head, int64_t dim) {
    const int64_t x = shuffle_pack(block_bytes(kv.dtype));
    return (((block * kv.kv_heads + head) * (kv.head_dim / x) + dim / x) * kv.block_size + slot) * x + dim % x;
  }
  static int64_t v(const PagedKv& kv, int64_t block, int64_t slot, int64_t head, int64_t dim) {
    const int64_t x = shuffle_pack(block_bytes(kv.dtype));
    return (((block * kv.kv_heads + head) * (kv.block_size / x) + slot / x) * kv.head_dim + dim) * x + slot % x;
  }
};

// Bytes of K or of V of one layer.
inline int64_t plane_bytes(const PagedKv& kv) {
  return kv.blocks * kv.block_size * kv.kv_heads * kv.head_dim * block_bytes(kv.dtype);
}

}  // namespace quire
