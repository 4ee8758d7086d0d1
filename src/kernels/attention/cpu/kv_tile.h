#pragma once
// Loads the keys and values of one partition from the paged cache into contiguous rows of floats: the only place that
// knows the layouts.
#include <cstdint>
#include <cstring>

#include "kernels/attention/attention.h"

namespace quire {

// Rows of T to rows of floats, `width` floats apart; what is past head_dim is left as it is.
template <class Isa, class T, bool kBf16>
void widen_row(const T* src, float* dst, int64_t n) {
  using F = typename Isa::F;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    F v;
    if constexpr (sizeof(T) == 4) {
      v = Isa::load(src + i);
    } else if constexpr (kBf16) {
      v = Isa::load_bf16(src + i);
    } else {
      v = Isa::load_f16(src + i);
    }
    Isa::store(dst + i, v);
  }
  for (; i < n; ++i) {
    if constexpr (sizeof(T) == 4) {
      dst[i] = src[i];
    } else if constexpr (kBf16) {
      dst[i] = bf16_to_f32(src[i]);
    } else {
      dst[i] = f16_to_f32(src[i]);
    }
  }
}

template <class Isa, class T, bool kBf16>
struct KvTile {
  // Rows for keys first_key .. first_key + n - 1 (n <= kPartitionKeys) of one KV head.
  static void load(const PagedKv& kv, const int32_t* block_table, int32_t kv_head, int64_t first_key, int64_t n,
                   int64_t width, float* k, float* v) {
    const auto* keys = static_cast<const T*>(kv.k);
    const auto* values = static_cast<const T*>(kv.v);
    for (int64_t done = 0; done < n;) {
      const int64_t key = first_key + done, slot = key % kv.block_size;
      const int64_t left = n - done, in_block = kv.block_size - slot, count = left < in_block ? left : in_block;
      const int64_t block = block_table[key / kv.block_size];
      if (kv.layout == KvLayout::kPlain) {
        load_plain(kv, keys, values, block, slot, count, kv_head, width, k + done * width, v + done * width);
      } else {
        load_shuffle(kv, keys, values, block, slot, count, kv_head, width, k + done * width, v + done * width);
      }
      done += count;
    }
  }

 private:
  static void load_plain(const PagedKv& kv, const T* keys, const T* values, int64_t block, int64_t slot, int64_t count,
                         int64_t head, int64_t width, float* k, float* v) {
    const int64_t first = PlainLayout::k(kv, block, slot, head, 0), stride = int64_t{kv.kv_heads} * kv.head_dim;
    for (int64_t i = 0; i < count; ++i) {
      widen_row<Isa, T, kBf16>(keys + first + i * stride, k + i * width, kv.head_dim);
      widen_row<Isa, T, kBf16>(values + first + i * stride, v + i * width, kv.head_dim);
    }
  }

  static void load_shuffle(const PagedKv& kv, const T* keys, const T* values, int64_t block, int64_t slot,
                           int64_t count, int64_t head, int64_t width, float* k, float* v) {
    constexpr int64_t kPack = shuffle_pack(sizeof(T));
    alignas(64) T row[kMaxHeadDim];
    const T* first_key = keys + ShuffleLayout::k(kv, block, slot, head, 0);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t d = 0; d < kv.head_dim; d += kPack)
        std::memcpy(row + d, first_key + i * kPack + d * kv.block_size, 16);
      widen_row<Isa, T, kBf16>(row, k + i * width, kv.head_dim);
    }
    for (int64_t i = 0; i < count; ++i) {
      const T* column = values + ShuffleLayout::v(kv, block, slot + i, head, 0);
      for (int64_t d = 0; d < kv.head_dim; ++d) row[d] = column[d * kPack];
      widen_row<Isa, T, kBf16>(row, v + i * width, kv.head_dim);
    }
  }
};

}  // namespace quire
