#pragma once
// Causal attention over a paged KV cache for some query rows of one request and one KV head.
//
// Order of arithmetic, the same for every phase, layout, batch, thread count and instruction set:
//   score    = dot(scale * q, k): lane i sums dims i, i+16, ... in order by fused multiply-add, then a tree over the 16
//   lanes partition = 64 keys at absolute positions 64p..64p+63: its maximum m, weights exp(score - m), their sum l,
//   and the weighted sum of V in
//               ascending key order
//   chunk    = 8 partitions (512 keys at absolute positions), merged in ascending order; chunks are merged in ascending
//   order
// so a row's result depends on its own keys only.
#include <cstddef>
#include <cstdint>

#include "tensor/paged_kv.h"

namespace quire {

constexpr int32_t kPartitionKeys = 64;
constexpr int32_t kChunkKeys = 512;
constexpr int32_t kQueryTile = 16;  // most rows of one task
constexpr int32_t kMaxHeadDim = 512;

// What all tasks of a layer share. q row i at q + i*ldq, [heads, head_dim]; out likewise.
struct AttentionArgs {
  int32_t heads = 0;
  float scale = 1.0f;
  PagedKv kv;
  const float* q = nullptr;
  int64_t ldq = 0;
  float* out = nullptr;
  int64_t ldo = 0;
};

// Rows [first_row, first_row + rows) of q are positions first_position... of one request; row i sees keys
// 0..first_position + i.
struct AttentionTask {
  const int32_t* block_table = nullptr;
  int32_t first_row = 0, rows = 0;
  int32_t first_position = 0;
  int32_t first_chunk = 0, chunks = 0;
  int32_t partial = -1;  // -1: all chunks are here and the result goes to out; else this chunk's state goes to partial
                         // state `partial`
};

// The state of a softmax over some keys of one row: maximum, sum of weights, weighted sum of V (not divided yet).
constexpr int64_t attention_state_floats(int32_t head_dim) { return 2 + head_dim; }

struct AttentionKernels {
  // partials: [partial][heads][state] floats. scratch: attention_scratch_floats.
  void (*attend)(const AttentionArgs& args, const AttentionTask& task, int32_t kv_head, float* partials,
                 float* scratch);
  // Merges the states of `count` chunks, ascending, of one row and writes row `row` of out for one head.
  void (*combine)(const AttentionArgs& args, int32_t row, int32_t head, const float* partials, int32_t first_partial,
                  int32_t count, float* scratch);
};

// Floats of scratch that one worker needs.
int64_t attention_scratch_floats(int32_t heads, int32_t kv_heads, int32_t head_dim);

const AttentionKernels& attention_kernels();  // for cpu_isa()

const AttentionKernels& attention_kernels_scalar();
const AttentionKernels& attention_kernels_avx2();
const AttentionKernels& attention_kernels_avx512();

}  // namespace quire
