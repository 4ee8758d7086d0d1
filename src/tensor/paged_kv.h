#pragma once
// The paged KV cache of one layer as its kernels see it, and the address functions of its two layouts (design.md
// section 4.7).
//   plain   K [blocks, block_size, kv_heads, head_dim], V the same with v_head_dim
//   shuffle K [blocks, kv_heads, head_dim/x, block_size, x], V [blocks, kv_heads, block_size/x, v_head_dim, x], x = 16
//           bytes / element size; K is padded to whole packs where x does not divide head_dim
// 8-bit caches store value / scale; the scales lie in planes of their own. Offsets are 64-bit from the block table on.
#include <cstdint>

#include "tensor/dtype.h"

namespace quire {

enum class KvLayout : uint8_t { kPlain, kShuffle };

// What one scale of an 8-bit cache is for: the layer's whole plane (1 float), a KV head ([kv_heads]), or one head of
// one token ([blocks, kv_heads, block_size], written together with the token). kNone: f32, f16, bf16.
enum class KvScaling : uint8_t { kNone, kTensor, kHead, kTokenHead };

// Elements in one 16-byte pack of the shuffle layout.
constexpr int64_t shuffle_pack(int64_t element_size) { return 16 / element_size; }

struct PagedKv {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::kF32;  // kF32, kF16, kBF16; with scales kF8E4M3, kF8E5M2, kI8
  KvLayout layout = KvLayout::kPlain;
  KvScaling scaling = KvScaling::kNone;
  int32_t block_size = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;    // of K
  int32_t v_head_dim = 0;  // equal to head_dim in the shuffle layout
  int64_t blocks = 0;
  float* k_scales = nullptr;  // shape: KvScaling
  float* v_scales = nullptr;
};

// head_dim as K is stored.
inline int64_t stored_head_dim(const PagedKv& kv) {
  if (kv.layout == KvLayout::kPlain) return kv.head_dim;
  const int64_t x = shuffle_pack(block_bytes(kv.dtype));
  return (kv.head_dim + x - 1) / x * x;
}

// Element offsets of (block, slot in block, head, dim).
struct PlainLayout {
  static int64_t k(const PagedKv& kv, int64_t block, int64_t slot, int64_t head, int64_t dim) {
    return ((block * kv.block_size + slot) * kv.kv_heads + head) * kv.head_dim + dim;
  }
  static int64_t v(const PagedKv& kv, int64_t block, int64_t slot, int64_t head, int64_t dim) {
    return ((block * kv.block_size + slot) * kv.kv_heads + head) * kv.v_head_dim + dim;
  }
};

struct ShuffleLayout {
  static int64_t k(const PagedKv& kv, int64_t block, int64_t slot, int64_t head, int64_t dim) {
    const int64_t x = shuffle_pack(block_bytes(kv.dtype));
    return (((block * kv.kv_heads + head) * (stored_head_dim(kv) / x) + dim / x) * kv.block_size + slot) * x + dim % x;
  }
  static int64_t v(const PagedKv& kv, int64_t block, int64_t slot, int64_t head, int64_t dim) {
    const int64_t x = shuffle_pack(block_bytes(kv.dtype));
    return (((block * kv.kv_heads + head) * (kv.block_size / x) + slot / x) * kv.v_head_dim + dim) * x + slot % x;
  }
};

// Index in k_scales and v_scales of (block, slot in block, head).
inline int64_t scale_index(const PagedKv& kv, int64_t block, int64_t slot, int64_t head) {
  switch (kv.scaling) {
    case KvScaling::kHead:
      return head;
    case KvScaling::kTokenHead:
      return (block * kv.kv_heads + head) * kv.block_size + slot;
    default:
      return 0;
  }
}

// Bytes of K and of V of one block of one layer.
inline int64_t k_block_bytes(const PagedKv& kv) {
  return int64_t{kv.block_size} * kv.kv_heads * stored_head_dim(kv) * block_bytes(kv.dtype);
}
inline int64_t v_block_bytes(const PagedKv& kv) {
  return int64_t{kv.block_size} * kv.kv_heads * kv.v_head_dim * block_bytes(kv.dtype);
}
// Bytes of K and of V of one layer.
inline int64_t k_plane_bytes(const PagedKv& kv) { return kv.blocks * k_block_bytes(kv); }
inline int64_t v_plane_bytes(const PagedKv& kv) { return kv.blocks * v_block_bytes(kv); }
// Floats of the scales of one block in each of its planes.
inline int64_t block_scales(const PagedKv& kv) {
  return kv.scaling == KvScaling::kTokenHead ? int64_t{kv.block_size} * kv.kv_heads : 0;
}
// Floats of k_scales, and of v_scales.
inline int64_t plane_scales(const PagedKv& kv) {
  switch (kv.scaling) {
    case KvScaling::kNone:
      return 0;
    case KvScaling::kTensor:
      return 1;
    case KvScaling::kHead:
      return kv.kv_heads;
    case KvScaling::kTokenHead:
      break;
  }
  return kv.blocks * block_scales(kv);
}

}  // namespace quire
