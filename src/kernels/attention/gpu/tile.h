#pragma once
// Which query rows a block works on. Included by GPU sources only.
//
// For one KV head the (row, query head) pairs of a request are its states: state s is row s / share, head s % share of
// the group. A tile is kStates of them in a row. Tiles have slots: those of request i begin at
// floor(offset_i * share / kStates) + i, which leaves room for all of them and can be searched without a prefix sum.
#include "gpu/runtime.h"
#include "kernels/attention/gpu/attention.h"

namespace quire::gpu {

template <int kStates>
inline int32_t tile_slots(const AttentionRequests& requests, int32_t share) {
  return static_cast<int32_t>(int64_t{requests.tokens} * share / kStates) + requests.requests;
}

struct AttentionTile {
  int32_t request;
  int32_t first_row;    // of the request in q and out
  int32_t first_state;  // of the tile in the request
  int32_t states;       // of the tile
  int32_t kv_len;
  int32_t first_position;  // of the request's first row

  __device__ int32_t row(int32_t state, int32_t share) const { return (first_state + state) / share; }
  __device__ int32_t position(int32_t state, int32_t share) const { return first_position + row(state, share); }
};

// False if the slot is empty.
template <int kStates>
__device__ inline bool find_tile(const AttentionRequests& requests, int32_t share, int32_t slot, AttentionTile& tile) {
  const int32_t origin = requests.query_offsets[0];
  int32_t low = 0, high = requests.requests - 1;
  while (low < high) {
    const int32_t middle = (low + high + 1) / 2;
    const int32_t begin =
        static_cast<int32_t>(static_cast<int64_t>(requests.query_offsets[middle] - origin) * share / kStates) + middle;
    if (begin <= slot) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int32_t first_row = requests.query_offsets[low], rows = requests.query_offsets[low + 1] - first_row;
  const int32_t begin = static_cast<int32_t>(static_cast<int64_t>(first_row - origin) * share / kStates) + low;
  tile.request = low;
  tile.first_row = first_row;
  tile.first_state = (slot - begin) * kStates;
  tile.states = min(kStates, rows * share - tile.first_state);
  tile.kv_len = requests.kv_lens[low];
  tile.first_position = tile.kv_len - rows;
  return tile.states > 0;
}

// The oldest key that a row at `position` sees.
__device__ inline int32_t oldest_key(int32_t position, int32_t window) {
  return window > 0 ? max(0, position - window + 1) : 0;
}

}  // namespace quire::gpu
