#pragma once
// 32 keys of a KV head in shared memory, as operands of gpu/matrix.h. Included by GPU sources only.
//
// Keys lie by packs of 8 dimensions, [kDims / 8][32], values by packs of 8 keys of one dimension, [4][kDims]: as in
// the shuffle layout of the cache, whatever its layout. What is not there (keys that are not seen, dimensions past the
// head size) is 0. 8-bit elements are widened on their way, exactly: K to the type of q and V to bf16. The exception
// are 8-bit floats of K where the matrix unit takes bytes (kHasF8Products): these stay bytes, two packs side by side.
#include <type_traits>

#include "gpu/matrix.h"
#include "gpu/vector.h"
#include "kernels/attention/gpu/parts.h"
#include "tensor/paged_kv.h"

namespace quire::gpu {

constexpr int32_t kChunkKeys = 32;

// Two floats that `T` holds exactly, side by side.
template <class T>
__device__ inline uint32_t exact_pair(float first, float second) {
  if constexpr (std::is_same_v<T, BF16>) {
    return __float_as_uint(first) >> 16 | (__float_as_uint(second) & 0xffff0000);
  } else {
    return bits_of_pair<T>(first, second);
  }
}

// Kv: the cache's elements. T: the type of q.
template <class Kv, class T, int kDims>
struct KeyChunk {
  static constexpr bool kNarrow = sizeof(Kv) == 1;
  static constexpr bool kByteKeys = kHasF8Products && kNarrow && !std::is_same_v<Kv, int8_t>;
  using ValueType = std::conditional_t<kNarrow, BF16, T>;

  // The host, which doesn't know whether K stays bytes, reserves what it takes widened.
  static constexpr int32_t kKeyRow = kChunkKeys * 16, kKeyBytes = kDims / 8 * kKeyRow;
  static constexpr int32_t kBytes = kKeyBytes + 4 * kDims * 16;

  char* memory;

  __device__ char* values() const { return memory + kKeyBytes; }

  // Neighbours are moved so that the reads below, which go over every other four lines, find them in different banks;
  // and so do stores of neighbouring packs.
  __device__ static int32_t key_place(int32_t key, int32_t pack) { return key ^ (key >> 1 & 4) ^ (pack & 7); }
  __device__ static int32_t dim_place(int32_t dim) {
    const int32_t block = dim >> 3;
    return dim ^ ((block & 1) << 2 | (block & 2) | (block >> 2 & 1));
  }

  // Left operands of a step over 32 dimensions for tile `tile` of keys: two of 16 bits, or one of bytes.
  __device__ void load_keys(MatrixOperand (&to)[2], int32_t lane, int32_t step, int32_t tile) const {
#pragma unroll
    for (int n = 0; n < kLines; ++n) {
      const int32_t key = row_of_line(tile, line_of(lane, n)), group = group_of(lane);
      const int32_t pack = kByteKeys ? step * 2 + group / 2 : step * 4 + group;
      const char* const at = memory + pack * kKeyRow + key_place(key, pack) * 16;
      if constexpr (kByteKeys) {
        const uint2 half = *reinterpret_cast<const uint2*>(at + group % 2 * 8);
        to[0].words[n][0] = half.x, to[0].words[n][1] = half.y;
      } else {
        set_line(to, n, *reinterpret_cast<const uint4*>(at));
      }
    }
  }

  // Left operands over the 32 keys for tile `tile` of the 32 dimensions from 32 * step on.
  __device__ void load_values(MatrixOperand (&to)[2], int32_t lane, int32_t step, int32_t tile) const {
#pragma unroll
    for (int n = 0; n < kLines; ++n) {
      const int32_t dim = dim_place(step * 32 + row_of_line(tile, line_of(lane, n)));
      set_line(to, n, *reinterpret_cast<const uint4*>(values() + (group_of(lane) * kDims + dim) * 16));
    }
  }

  // 8 dimensions of a key.
  __device__ void store_keys(const Packed<Kv, 8>& pack, int32_t key, int32_t dims) const {
    const int32_t place = kByteKeys ? dims / 2 : dims;
    char* const at = memory + place * kKeyRow + key_place(key, place) * 16;
    if constexpr (kByteKeys) {
      *reinterpret_cast<uint2*>(at + dims % 2 * 8) =
          make_uint2(ocp_as_fnuz<Kv>(pack.words[0]), ocp_as_fnuz<Kv>(pack.words[1]));
    } else {
      *reinterpret_cast<uint4*>(at) = widened<T>(pack);
    }
  }

  // 8 keys of a dimension.
  __device__ void store_values(const uint4& pack, int32_t keys, int32_t dim) const {
    *reinterpret_cast<uint4*>(values() + (keys * kDims + dim_place(dim)) * 16) = pack;
  }

  template <class To>
  __device__ static uint4 widened(const Packed<Kv, 8>& pack) {
    if constexpr (kNarrow) {
      return make_uint4(
          exact_pair<To>(pack.element(0), pack.element(1)), exact_pair<To>(pack.element(2), pack.element(3)),
          exact_pair<To>(pack.element(4), pack.element(5)), exact_pair<To>(pack.element(6), pack.element(7)));
    } else {
      return make_uint4(pack.words[0], pack.words[1], pack.words[2], pack.words[3]);
    }
  }
};

// What the threads of a team bring to the chunks of theirs: each has some tasks, and holds the bytes of a task in
// registers between its load and its store.
template <class Kv, class T, int kDims, int kChunks, int kTeam>
struct KeyFetch {
  using Chunk = KeyChunk<Kv, T, kDims>;
  static constexpr bool kNarrow = Chunk::kNarrow;
  static constexpr int32_t kAllKeys = kChunks * kChunkKeys;
  // Keys: 8 dimensions of one. Values: 8 keys of 4 dimensions.
  static constexpr int32_t kKeyTasks = kAllKeys * (kDims / 8) / kTeam;
  static constexpr int32_t kValueUnits = kChunks * kDims, kValueTasks = (kValueUnits + kTeam - 1) / kTeam;
  static_assert(kAllKeys * (kDims / 8) % kTeam == 0);
  // 4 elements of each of 8 keys, or 8 of each of 4 dimensions.
  static constexpr int32_t kWordsOf4 = static_cast<int32_t>(sizeof(Kv)), kWordsOf8 = 2 * kWordsOf4;
  struct Values {
    uint32_t words[8 * kWordsOf4];
  };

  const PagedKv& kv;
  const PartKeys& keys;
  int32_t head, thread;  // thread: of the team
  uint32_t inverse;      // 2^32 / (block_size / 16), rounded up: for blocks of up to kMatrixBlockSize

  __device__ bool seen(int32_t key) const { return key >= keys.begin && key < keys.end; }

  // Where a key is. Sixteen keys lie in one block. Loads are made for all keys; for sixteen of which none is seen, of
  // others, and what comes is dropped when it is stored.
  struct Place {
    int64_t block;
    int32_t slot;
  };
  __device__ Place place(int32_t key) const {
    const int32_t sixteens = min(max(key, keys.begin), keys.end - 1) / 16, size = kv.block_size / 16;
    const int32_t index = size == 1 ? sixteens : static_cast<int32_t>(__umulhi(sixteens, inverse));
    return {keys.block_at(index), (sixteens - index * size) * 16 + key % 16};
  }

  // Neighbouring threads take neighbouring packs in memory.
  __device__ void key_task(int32_t task, int32_t& key, int32_t& dims) const {
    const int32_t i = task * kTeam + thread;
    if (kv.layout == KvLayout::kShuffle) {
      key = i % kAllKeys, dims = i / kAllKeys;
    } else {
      dims = i % (kDims / 8), key = i / (kDims / 8);
    }
  }

  __device__ Packed<Kv, 8> load_keys(int32_t task, int32_t first) const {
    int32_t key, dims;
    key_task(task, key, dims);
    dims = dims * 8 < kv.head_dim ? dims : 0;
    const Place at = place(first + key);
    constexpr int32_t kX = 16 / sizeof(Kv);
    int64_t offset;
    if (kv.layout == KvLayout::kShuffle) {
      const int32_t packs = (kv.head_dim + kX - 1) / kX;
      offset =
          (((at.block * kv.kv_heads + head) * packs + dims * 8 / kX) * kv.block_size + at.slot) * kX + dims * 8 % kX;
    } else {
      offset = ((at.block * kv.block_size + at.slot) * kv.kv_heads + head) * kv.head_dim + dims * 8;
    }
    return Packed<Kv, 8>::load(static_cast<const Kv*>(kv.k) + offset);
  }

  __device__ void store_keys(int32_t task, Packed<Kv, 8> pack, int32_t first, char* chunks) const {
    int32_t key, dims;
    key_task(task, key, dims);
    if (!seen(first + key) || dims * 8 >= kv.head_dim) pack = {};
    Chunk{chunks + key / kChunkKeys * Chunk::kBytes}.store_keys(pack, key % kChunkKeys, dims);
  }

  // Unit u of a task in the shuffle layout is 8 keys of one dimension.
  __device__ int32_t shuffled_unit(int32_t task, int32_t u) const { return (task * 4 + u) * kTeam + thread; }

  __device__ Values load_values(int32_t task, int32_t first) const {
    Values values;
    if (kv.layout == KvLayout::kShuffle) {
      constexpr int32_t kX = 16 / sizeof(Kv);
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        const int32_t unit = shuffled_unit(task, u), dim = min(unit % kDims, kv.v_head_dim - 1);
        const Place at = place(first + unit / kDims * 8);
        const int64_t pack = (at.block * kv.kv_heads + head) * (kv.block_size / kX) + at.slot / kX;
        const auto loaded =
            Packed<Kv, 8>::load(static_cast<const Kv*>(kv.v) + (pack * kv.v_head_dim + dim) * kX + at.slot % kX);
#pragma unroll
        for (int w = 0; w < kWordsOf8; ++w) values.words[u * kWordsOf8 + w] = loaded.words[w];
      }
    } else {
      const int32_t unit = task * kTeam + thread;
      const Place at = place(first + unit / (kDims / 4) * 8);
      const int32_t dim = min(unit % (kDims / 4) * 4, kv.v_head_dim - 4);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int64_t slot = at.block * kv.block_size + at.slot + n;
        const int64_t offset = (slot * kv.kv_heads + head) * kv.v_head_dim + dim;
        const auto loaded = Packed<Kv, 4>::load(static_cast<const Kv*>(kv.v) + offset);
#pragma unroll
        for (int w = 0; w < kWordsOf4; ++w) values.words[n * kWordsOf4 + w] = loaded.words[w];
      }
    }
    return values;
  }

  __device__ void store_values(int32_t task, Values values, int32_t first, char* chunks) const {
    using To = typename Chunk::ValueType;
    if (kv.layout == KvLayout::kShuffle) {
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        const int32_t unit = shuffled_unit(task, u), dim = unit % kDims, pack = unit / kDims, key = first + pack * 8;
        if (unit >= 4 * kValueUnits) continue;
        Packed<Kv, 8> bytes;
#pragma unroll
        for (int w = 0; w < kWordsOf8; ++w) bytes.words[w] = values.words[u * kWordsOf8 + w];
        if (dim >= kv.v_head_dim) bytes = {};
        if (key < keys.begin || key + 8 > keys.end) drop_unseen(bytes, key);
        Chunk{chunks + pack / 4 * Chunk::kBytes}.store_values(Chunk::template widened<To>(bytes), pack % 4, dim);
      }
    } else {
      const int32_t unit = task * kTeam + thread, dim = unit % (kDims / 4) * 4, pack = unit / (kDims / 4);
      if (unit >= kValueUnits) return;
      const Chunk chunk{chunks + pack / 4 * Chunk::kBytes};
      const bool there = dim < kv.v_head_dim;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const bool kept = there && seen(first + pack * 8 + n);
#pragma unroll
        for (int w = 0; w < kWordsOf4; ++w)
          values.words[n * kWordsOf4 + w] = kept ? values.words[n * kWordsOf4 + w] : 0;
      }
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        uint32_t words[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) words[n] = pair(values, 2 * n, d);
        chunk.store_values(make_uint4(words[0], words[1], words[2], words[3]), pack % 4, dim + d);
      }
    }
  }

  // Dimension d of the 4 of keys n and n + 1, of the plain layout.
  __device__ static uint32_t pair(const Values& values, int32_t n, int32_t d) {
    if constexpr (kNarrow) {
      Packed<Kv, 4> first, second;
      first.words[0] = values.words[n], second.words[0] = values.words[n + 1];
      return exact_pair<BF16>(first.element(d), second.element(d));
    } else {
      const uint32_t first = values.words[n * 2 + d / 2], second = values.words[n * 2 + 2 + d / 2];
      return d % 2 == 0 ? (first & 0xffff) | second << 16 : first >> 16 | (second & 0xffff0000);
    }
  }

  // What lies in the slots of keys that are not seen may be no number.
  __device__ void drop_unseen(Packed<Kv, 8>& pack, int32_t key) const {
    constexpr int32_t kBits = 8 * sizeof(Kv), kInWord = 32 / kBits;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (!seen(key + n)) pack.words[n / kInWord] &= ~(((1u << kBits) - 1) << n % kInWord * kBits);
    }
  }

  // What the scores, or the weights, of 8 keys from `key` on are multiplied by.
  __device__ void load_factors(const float* scales, int32_t key, float (&factors)[8]) const {
    if (kv.scaling == KvScaling::kTokenHead) {
      const Place at = place(key);
      load_floats(scales + (at.block * kv.kv_heads + head) * kv.block_size + at.slot, factors);
    } else {
      const float scale = scales[kv.scaling == KvScaling::kHead ? head : 0];
#pragma unroll
      for (int n = 0; n < 8; ++n) factors[n] = scale;
    }
  }
};

}  // namespace quire::gpu
