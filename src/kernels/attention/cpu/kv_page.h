#pragma once
// 16 keys of one KV head as they lie in a page of the cache: the only place of the CPU kernels that knows the layouts.
// They are copied to floats for tasks with many rows (load_keys, load_values), or used as they are read (scores,
// weigh).
//
// Both layouts keep runs of 16 bytes together, x elements along head_dim (K) or along the keys (V, shuffle), so one
// primitive serves: Pieces reads 16 such pieces and gives them transposed, x vectors of 16 floats. 8-bit elements are
// widened first and then are pieces of floats. Block sizes are multiples of 16, so the keys lie in one block.
//
// Blocks lie anywhere, so the processor can't guess what comes next: whoever knows says so (`ahead`), and each read
// starts as many bytes on their way to the L2 cache. Spread so, they keep the memory busy without filling its queues.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/products.h"

namespace quire {

template <class Isa, class Pieces, DType kDType>
class KvPage {
  using F = typename Isa::F;
  using Products = AttentionProducts<Isa, Pieces::kAccumulators>;

 public:
  // Where the keys and their values begin; nulls = nowhere.
  struct Source {
    const std::byte *k = nullptr, *v = nullptr;
  };

  explicit KvPage(const PagedKv& kv)
      : head_dim_(kv.head_dim),
        v_head_dim_(kv.v_head_dim),
        plain_(kv.layout == KvLayout::kPlain),
        key_stride_(plain_ ? int64_t{kv.kv_heads} * kv.head_dim * kElement : kPiece),
        pack_stride_(plain_ ? kPiece : kPiece * kv.block_size),
        row_stride_(int64_t{kv.kv_heads} * kv.v_head_dim * kElement) {}

  // key: a multiple of 16.
  static Source source(const PagedKv& kv, const int32_t* block_table, int64_t kv_head, int64_t key) {
    const int64_t slot = key % kv.block_size, block = block_table[key / kv.block_size];
    const bool plain = kv.layout == KvLayout::kPlain;
    const int64_t k = plain ? PlainLayout::k(kv, block, slot, kv_head, 0)
                            : ShuffleLayout::k(kv, block, slot, kv_head, 0),
                  v = plain ? PlainLayout::v(kv, block, slot, kv_head, 0)
                            : ShuffleLayout::v(kv, block, slot, kv_head, 0);
    return {static_cast<const std::byte*>(kv.k) + k * kElement, static_cast<const std::byte*>(kv.v) + v * kElement};
  }

  // K as a panel [head_dim][16]; lanes past the last key hold whatever the block holds there.
  void load_keys(const Source& from, const Source& ahead, float* panel, float* wide) const {
    for_packs<true>(from.k, ahead.k, wide, [&](int64_t d, const F* t, int64_t n) {
      for (int64_t e = 0; e < n; ++e) Isa::store(panel + (d + e) * 16, t[e]);
    });
  }

  // Values of the first n keys as keys `key`, key + 1, ... of a tile (AttentionProducts::value_index), zeros past
  // v_head_dim.
  void load_values(const Source& from, const Source& ahead, int64_t n, float* tile, int64_t key, float* wide) const {
    if (ahead.v != nullptr) prefetch_values(ahead.v);
    const int64_t width = attention_width(static_cast<int32_t>(v_head_dim_));
    for (int64_t d = 0; d < v_head_dim_; d += 16) {
      float* to = tile + Products::value_index(key, d, width);
      const int64_t stride = Products::value_index(1, d, width) - Products::value_index(0, d, width);
      if (plain_) {
        for (int64_t i = 0; i < n; ++i)
          Isa::store(to + i * stride, widen_part(from.v + i * row_stride_ + d * kElement, v_head_dim_ - d));
      } else {
        for (int64_t i = 0; i < n; i += kPack)
          with_values(from.v, i, d, wide, [&](int64_t e, F row) { Isa::store(to + (i + e) * stride, row); });
      }
    }
  }

  // scores[r * kPartitionKeys + key] = sum over d of q[r * head_dim + d] * k[key][d], for all 16 keys.
  template <int kRows>
  void scores(const Source& from, const Source& ahead, const float* q, float* scores, float* wide) const {
    F acc[kRows];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) acc[r] = Isa::zero();
    for_packs<false>(from.k, ahead.k, wide, [&](int64_t d, const F* t, int64_t n) {
#pragma GCC unroll 8
      for (int64_t e = 0; e < n; ++e) {
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) acc[r] = Isa::fma(Isa::set1(q[r * head_dim_ + d + e]), t[e], acc[r]);
      }
    });
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) Isa::store(scores + r * kPartitionKeys, acc[r]);
  }

  // values[r * width + d] = (onto ? values[..] : 0) + sum over keys [begin, end) of w[r * kPartitionKeys + key] *
  // v[key][d].
  template <int kRows>
  void weigh(const Source& from, const Source& ahead, const float* w, int64_t begin, int64_t end, bool onto,
             float* values, float* wide) const {
    const int64_t width = attention_width(static_cast<int32_t>(v_head_dim_));
    int64_t d = 0;
    if (plain_) {
      constexpr int kColumns = kRows <= 4 ? 4 : 2;
      for (; d + 16 * kColumns <= v_head_dim_; d += 16 * kColumns)
        weigh_rows<kRows, kColumns>(from.v, ahead.v, d, w, begin, end, onto, values + d, width);
      for (; d + 16 <= v_head_dim_; d += 16)
        weigh_rows<kRows, 1>(from.v, ahead.v, d, w, begin, end, onto, values + d, width);
    } else {
      constexpr int kColumns = Pieces::kAccumulators < 4 * kRows ? 1 : 4;
      for (; d + 16 * kColumns <= v_head_dim_; d += 16 * kColumns)
        weigh_packs<kRows, kColumns>(from.v, ahead.v, d, w, begin, end, onto, values + d, width, wide);
    }
    for (; d < v_head_dim_; d += 16) {
      if (plain_) {
        weigh_end<kRows>(from.v, d, w, begin, end, onto, values + d, width);
      } else {
        weigh_packs<kRows, 1>(from.v, ahead.v, d, w, begin, end, onto, values + d, width, wide);
      }
    }
  }

 private:
  static constexpr int64_t kElement = kDType == DType::kF32                             ? 4
                                      : kDType == DType::kF16 || kDType == DType::kBF16 ? 2
                                                                                        : 1;
  static constexpr int64_t kPack = shuffle_pack(kElement);
  static constexpr int64_t kPiece = 16, kLine = 64;  // bytes

  static F widen(const std::byte* p) {
    if constexpr (kDType == DType::kF32) {
      return Isa::load(reinterpret_cast<const float*>(p));
    } else if constexpr (kDType == DType::kBF16) {
      return Isa::load_bf16(reinterpret_cast<const uint16_t*>(p));
    } else if constexpr (kDType == DType::kF16) {
      return Isa::load_f16(reinterpret_cast<const uint16_t*>(p));
    } else if constexpr (kDType == DType::kF8E4M3) {
      return Isa::load_f8e4m3(reinterpret_cast<const uint8_t*>(p));
    } else if constexpr (kDType == DType::kF8E5M2) {
      return Isa::load_f8e5m2(reinterpret_cast<const uint8_t*>(p));
    } else {
      return Isa::load_i8(reinterpret_cast<const int8_t*>(p));
    }
  }

  // Up to 16 elements, zeros after the n-th.
  static F widen_part(const std::byte* src, int64_t n) {
    if (n >= 16) return widen(src);
    alignas(64) std::byte part[16 * kElement] = {};
    std::memcpy(part, src, static_cast<size_t>(n * kElement));
    return widen(part);
  }

  // One key.
  void copy_row(const std::byte* src, std::byte* dst) const {
    const int64_t bytes = head_dim_ * kElement;
    int64_t at = 0;
    for (; at + kLine <= bytes; at += kLine)
      Isa::store(reinterpret_cast<float*>(dst + at), Isa::load(reinterpret_cast<const float*>(src + at)));
    if (at < bytes) std::memcpy(dst + at, src + at, static_cast<size_t>(bytes - at));
  }

  static void prefetch_bytes(const std::byte* first, int64_t n) {
    for (int64_t at = 0; at < n; at += kLine) Isa::prefetch(first + at);
  }

  // The lines of piece `pack` of 16 keys, or where a line holds four pieces of a key, of a quarter of them.
  void prefetch_keys(const std::byte* ahead, int64_t pack) const {
    if (!plain_) return prefetch_bytes(ahead + pack * pack_stride_, 16 * kPiece);
    const std::byte* first = ahead + pack / 4 * kLine + pack % 4 * 4 * key_stride_;
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) Isa::prefetch(first + i * key_stride_);
  }

  void prefetch_values(const std::byte* ahead) const {
    if (!plain_) return prefetch_bytes(ahead, 16 * v_head_dim_ * kElement);
    for (int64_t i = 0; i < 16; ++i) prefetch_bytes(ahead + i * row_stride_, v_head_dim_ * kElement);
  }

  // fn(d, t, n): t[e] has element d + e of the 16 keys, e < n.
  // kCopy: plain keys are copied first. They are read line after line then, and not all keys' lines by turns: a stride
  // of 4 KiB leaves room for 12 of them in the L1 cache.
  template <bool kCopy, class Fn>
  void for_packs(const std::byte* src, const std::byte* ahead, [[maybe_unused]] float* wide, Fn fn) const {
    F t[16 / (kElement > 1 ? kElement : 4)];
    if constexpr (kElement > 1) {
      int64_t stride = key_stride_;
      if (kCopy && plain_) {
        auto* rows = reinterpret_cast<std::byte*>(wide);
        stride = attention_width(static_cast<int32_t>(head_dim_)) * static_cast<int64_t>(sizeof(float));
        for (int64_t i = 0; i < 16; ++i) {
          if (ahead != nullptr) prefetch_bytes(ahead + i * key_stride_, head_dim_ * kElement);
          copy_row(src + i * key_stride_, rows + i * stride);
        }
        src = rows;
        ahead = nullptr;
      }
      for (int64_t d = 0; d < head_dim_; d += kPack) {
        if (ahead != nullptr) prefetch_keys(ahead, d / kPack);
        const std::byte* pieces = src + d / kPack * pack_stride_;
        if (plain_) {
          Pieces::template transpose<kDType>(pieces, stride, t);
        } else {
          Pieces::template transpose_packed<kDType>(pieces, t);
        }
        fn(d, t, kPack);
      }
    } else {
      const int64_t width = attention_width(static_cast<int32_t>(head_dim_));
      for (int64_t i = 0; i < 16; ++i) {
        if (ahead != nullptr) prefetch_keys(ahead, i);
        for (int64_t d = 0; d < head_dim_; d += kPack) {
          const std::byte* piece = src + i * key_stride_ + d / kPack * pack_stride_;
          Isa::store(wide + i * width + d, widen_part(piece, plain_ ? head_dim_ - d : kPack));
        }
      }
      constexpr int64_t kFloats = 4;
      for (int64_t d = 0; d < head_dim_; d += kFloats) {
        Pieces::template transpose<DType::kF32>(reinterpret_cast<const std::byte*>(wide + d),
                                                width * static_cast<int64_t>(sizeof(float)), t);
        fn(d, t, kFloats);
      }
    }
  }

  // fn(e, row): elements d .. d + 15 of the value of key `key` + e, for the keys of one pack of the shuffle layout.
  template <class Fn>
  void with_values(const std::byte* v, int64_t key, int64_t d, [[maybe_unused]] float* wide, Fn fn) const {
    const std::byte* src = v + (key / kPack * v_head_dim_ + d) * kPiece;
    alignas(64) std::byte part[16 * kPiece];
    if (v_head_dim_ - d < 16) {
      std::memset(part, 0, sizeof part);
      std::memcpy(part, src, static_cast<size_t>((v_head_dim_ - d) * kPiece));
      src = part;
    }
    F t[16 / (kElement > 1 ? kElement : 4)];
    if constexpr (kElement > 1) {
      Pieces::template transpose_packed<kDType>(src, t);
#pragma GCC unroll 8
      for (int64_t e = 0; e < kPack; ++e) fn(e, t[e]);
    } else {
      for (int64_t i = 0; i < 16; ++i) Isa::store(wide + i * 16, widen(src + i * kPiece));
      for (int64_t first = 0; first < 16; first += 4) {
        Pieces::template transpose<DType::kF32>(reinterpret_cast<const std::byte*>(wide + first), 16 * sizeof(float),
                                                t);
        for (int64_t e = 0; e < 4; ++e) fn(first + e, t[e]);
      }
    }
  }

  // kColumns vectors of the plain layout's rows.
  template <int kRows, int kColumns>
  void weigh_rows(const std::byte* v, const std::byte* ahead, int64_t d, const float* w, int64_t begin, int64_t end,
                  bool onto, float* values, int64_t width) const {
    Products::template weigh_tile<kRows, kColumns>(w, begin, end, {.onto = onto}, values, width,
                                                   [&](int64_t key, int c) {
                                                     const int64_t at = key * row_stride_ + d * kElement;
                                                     if (c == 0 && ahead != nullptr)
                                                       prefetch_bytes(ahead + at, 16 * kColumns * kElement);
                                                     return widen(v + at + c * 16 * kElement);
                                                   });
  }

  // The last elements of the plain layout's rows, fewer than 16.
  template <int kRows>
  void weigh_end(const std::byte* v, int64_t d, const float* w, int64_t begin, int64_t end, bool onto, float* values,
                 int64_t width) const {
    Products::template weigh_tile<kRows, 1>(w, begin, end, {.onto = onto}, values, width, [&](int64_t key, int) {
      return widen_part(v + key * row_stride_ + d * kElement, v_head_dim_ - d);
    });
  }

  // kColumns vectors of the shuffle layout's packs of keys, in the order they lie in.
  template <int kRows, int kColumns>
  void weigh_packs(const std::byte* v, const std::byte* ahead, int64_t d, const float* w, int64_t begin, int64_t end,
                   bool onto, float* values, int64_t width, float* wide) const {
    F acc[kRows * kColumns];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        acc[r * kColumns + c] = onto ? Isa::load(values + r * width + c * 16) : Isa::zero();
      }
    }
    for (int64_t key = begin / kPack * kPack; key < end; key += kPack) {
      const auto add = [&](auto inside) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int c = 0; c < kColumns; ++c) {
          if (ahead != nullptr) prefetch_bytes(ahead + (key / kPack * v_head_dim_ + d + c * 16) * kPiece, 16 * kPiece);
          with_values(
              v, key, d + c * 16, wide, [&](int64_t e, F row) __attribute__((always_inline)) {
                if (!inside && (key + e < begin || key + e >= end)) return;
#pragma GCC unroll 6
                for (int r = 0; r < kRows; ++r) {
                  F& sum = acc[r * kColumns + c];
                  sum = Isa::fma(Isa::set1(w[r * kPartitionKeys + key + e]), row, sum);
                }
              });
        }
      };
      if (begin <= key && key + kPack <= end) {
        add(std::true_type{});
      } else {
        add(std::false_type{});
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) Isa::store(values + r * width + c * 16, acc[r * kColumns + c]);
    }
  }

  int64_t head_dim_, v_head_dim_;
  bool plain_;
  int64_t key_stride_, pack_stride_, row_stride_;
};

}  // namespace quire
