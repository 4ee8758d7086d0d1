#pragma once
// Turns what the host staged for a step into what the step's kernels read: keeps the block tables on the device up to
// date, gives each new token its id, position and slot.
#include <cstdint>

#include "gpu/stream.h"

namespace quire::gpu {

// `count` blocks of `ids`, beginning at `offset`, become entries [first, first + count) of row `row` of the block
// tables.
struct BlockTableDelta {
  int32_t row, first, count, offset;
};

// All pointers are of device memory. Requests are in the order of the step; padding has query_len 0 tokens or kv_len 0.
struct StepInputArgs {
  const int32_t* query_offsets;     // [requests + 1]
  const int32_t* kv_lens;           // [requests]; 0 = padding: its tokens get position 0 and slot -1
  const int32_t* block_table_rows;  // [requests]
  // [tokens]: an id, or -1 - i for the token that the last step sampled as its i-th (`sampled`)
  const int32_t* staged_ids;
  const int32_t* sampled;
  const BlockTableDelta* deltas;  // [delta_count], of rows that differ or places that differ
  const int32_t* delta_blocks;
  int32_t requests, tokens, delta_count;
  int32_t block_size;
  int64_t block_table_stride;
  int32_t* block_tables;  // updated first
  // Results, [tokens].
  int32_t* token_ids;
  int32_t* positions;
  int64_t* slots;
};

// One launch if there are no deltas, else two.
void prepare_step(const StepInputArgs& args, Stream& stream);

}  // namespace quire::gpu
