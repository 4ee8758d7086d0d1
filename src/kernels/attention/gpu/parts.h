#pragma once
// Rows whose keys more than one block or launch works on. Included by GPU sources only.
#include "gpu/runtime.h"
#include "kernels/attention/gpu/attention.h"
#include "kernels/attention/gpu/tile.h"

namespace quire::gpu {

// What a launch does of its rows' keys.
struct AttentionParts {
  enum class Kind : uint8_t {
    kWhole,  // all, and writes out
    kSplit,  // `count` shares of each tile's keys; each leaves a state
    kRound,  // the context pages that lie gathered, into the states that are there
    kRest,   // the keys behind all gathered ones, then writes out
  } kind = Kind::kWhole;
  int32_t count = 1;
  // [count, tokens, heads] states: their totals [v_head_dim], then two numbers for each: the maximum times log2(e), and
  // the sum of weights.
  float* states = nullptr;
  // The context pages of request i are page_offsets[i] ... of a sequence, of which a round has `pages` from first_page
  // on.
  const int32_t* page_offsets = nullptr;
  int32_t first_page = 0, pages = 0;
};

// The keys of a tile that a block attends to.
struct PartKeys {
  int32_t begin, end;    // seen by some row
  int32_t first, stop;   // bounds of the loop over tiles of keys
  const int32_t* table;  // of blocks, or null: block b of the context is b + shift
  int32_t shift;
  bool fresh, finish;  // no state before; out is written
  bool none;           // there is nothing to do

  __device__ int64_t block(int32_t key, int32_t block_size) const { return block_at(key / block_size); }
  __device__ int64_t block_at(int32_t index) const { return table != nullptr ? table[index] : index + shift; }
};

// The first page of a request's context that is worth gathering, and how many are full.
__device__ inline int32_t first_context_page(int32_t context_len, int32_t window, int32_t block_size) {
  return oldest_key(context_len, window) / block_size;
}
__device__ inline int32_t context_pages(int32_t context_len, int32_t window, int32_t block_size) {
  return context_len <= 0 ? 0 : max(0, context_len / block_size - first_context_page(context_len, window, block_size));
}

// kKeys: of the block's tiles of keys.
template <int kKeys>
__device__ inline PartKeys part_keys(const AttentionArgs& args, const AttentionRequests& requests,
                                     const AttentionParts& parts, const AttentionTile& tile, int32_t share,
                                     int32_t part) {
  PartKeys keys;
  keys.begin = oldest_key(tile.position(0, share), args.window);
  keys.end = tile.position(tile.states - 1, share) + 1;
  keys.table = requests.block_tables + requests.block_table_rows[tile.request] * requests.block_table_stride;
  keys.shift = 0;
  keys.fresh = keys.finish = true;
  keys.none = false;
  if (parts.kind == AttentionParts::Kind::kRound || parts.kind == AttentionParts::Kind::kRest) {
    const int32_t before = parts.page_offsets[tile.request], after = parts.page_offsets[tile.request + 1];
    // Page n of the context is page `origin` + n of the sequence.
    const int32_t page = first_context_page(tile.first_position, args.window, args.kv.block_size),
                  origin = before - page;
    if (parts.kind == AttentionParts::Kind::kRest) {
      keys.fresh = after == before;
      if (after > before) keys.begin = max(keys.begin, (after - origin) * args.kv.block_size);
    } else {
      const int32_t low = max(before, parts.first_page), high = min(after, parts.first_page + parts.pages);
      keys.begin = max(keys.begin, (low - origin) * args.kv.block_size);
      keys.end = min(keys.end, (high - origin) * args.kv.block_size);
      keys.table = nullptr;
      keys.shift = origin - parts.first_page;
      keys.fresh = low == before;
      keys.finish = false;
      keys.none = low >= high;
    }
  }
  keys.first = keys.begin / kKeys * kKeys;
  keys.stop = keys.end;
  if (parts.kind == AttentionParts::Kind::kSplit) {
    const int32_t tiles = (keys.end - keys.first + kKeys - 1) / kKeys, each = (tiles + parts.count - 1) / parts.count;
    keys.first += part * each * kKeys;
    keys.stop = min(keys.end, keys.first + each * kKeys);
    keys.finish = false;
  }
  return keys;
}

// Where the state of a row (of those of the requests) and head is.
struct StatePlace {
  float* totals;
  float2* numbers;
};
__device__ inline StatePlace state_place(const AttentionParts& parts, const AttentionArgs& args,
                                         const AttentionRequests& requests, int32_t part, int64_t row, int32_t head) {
  const int64_t index = (part * int64_t{requests.tokens} + row) * args.heads + head;
  float* const numbers = parts.states + int64_t{parts.count} * requests.tokens * args.heads * args.kv.v_head_dim;
  return {parts.states + index * args.kv.v_head_dim, reinterpret_cast<float2*>(numbers) + index};
}

// The kernels; those after the first have conditions. small: with small tiles, which the second takes for all kinds but
// kWhole anyway.
void launch_general(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                    bool small, Stream& stream);
bool attention_extend_fits(const AttentionArgs& args);
void launch_extend(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                   bool small, Stream& stream);
#if defined(__HIP_PLATFORM_AMD__)
constexpr bool kPortableIsBest = true;
#else
constexpr bool kPortableIsBest = false;
#endif
// The one on any vendor's matrix instructions. states: matrix_tile_states, where the card holds so many blocks.
bool attention_matrix_fits(const AttentionArgs& args);
int32_t matrix_tile_states(const AttentionArgs& args, const AttentionRequests& requests, int64_t resident);
void launch_matrix(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                   int32_t states, Stream& stream);
void launch_matrix_8_bit(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                         int32_t states, Stream& stream);
// States of their tiles.
constexpr int32_t kGeneralStates = 16, kSmallGeneralStates = 4, kExtendStates = 128, kSmallExtendStates = 64;
// Keys in a block of the cache that the last one takes at most.
constexpr int32_t kMatrixBlockSize = 512;
constexpr int32_t kMatrixDecodeStates = 16, kMatrixStates = 64, kMatrixLargeStates = 128;

}  // namespace quire::gpu
