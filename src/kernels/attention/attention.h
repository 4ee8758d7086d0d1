#pragma once
// Causal attention over a paged KV cache for some query rows of one request and one KV head.
//
// Order of arithmetic, the same for every phase, strategy, layout, batch, thread count and instruction set:
//   score     = sum over d ascending of (scale * q[d]) * k[d], by fused multiply-add from 0; then times the key's
//   scale,
//               soft cap and slope, where there are such
//   partition = 128 keys at absolute positions 128p..128p+127, less those that the row does not see: their maximum m,
//               weights w = exp(score - m), the sum of w (lane i sums keys i, i+16, ... ascending, then a tree over the
//               16 lanes; 0 if m is -inf) and the sum of (w * the value's scale) * v over keys ascending, by fused
//               multiply-add from 0
//   row       = its partitions merged one by one in ascending order (merge.h), then the sink, then divided by the sum
// so a row's result depends on its own keys only. exp and tanh are those of kernels/simd: simd_exp_falling for weights,
// simd_exp for merging.
#include <cstddef>
#include <cstdint>

#include "tensor/head_rows.h"
#include "tensor/paged_kv.h"

namespace quire {

constexpr int32_t kPartitionKeys = 128;
constexpr int32_t kMaxHeadDim = 512;
// So few (row, head) pairs use each key as it comes from its page, all KV heads side by side as they lie there; more
// share a copy of a partition.
constexpr int32_t kPageStates = 6;

// What all tasks of a layer share. The fields are those of AttentionGroup and AttentionLayer (attention/backend.h).
struct AttentionArgs {
  int32_t heads = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;
  int32_t window = 0;
  const float* alibi_slopes = nullptr;
  const float* sinks = nullptr;
  PagedKv kv;
  ConstHeadRows q;
  HeadRows out;
};

// Rows [first_row, first_row + rows) of q are positions first_position... of one request; row i sees the keys up to its
// position, or the newest `window` of them. The task attends to partitions first_partition... of those.
struct AttentionTask {
  const int32_t* block_table = nullptr;
  int32_t first_row = 0, rows = 0;  // rows: up to attention_tile_rows
  int32_t first_position = 0;
  int32_t first_partition = 0, partitions = 0;
  // Where the keys and values lie gathered (gather below), from first_partition on; null: in the pages.
  const float* gathered = nullptr;
  // Where the softmax states are, [row or partition of the task][heads][state]; null: none is read or left.
  float* states = nullptr;
  enum class Use : uint8_t {
    kWhole,       // no states: the task has all partitions of its rows and writes out
    kPartitions,  // one row: the state of each partition goes to `states`, and merge_row makes the output
    kFirst,       // the rows' states over these partitions go to `states`
    kMiddle,      // ... after being merged into those that are there
    kLast,        // ... and then out is written instead
  } use = Use::kWhole;
};

// The state of a softmax over some keys of one row and head: the weighted sum of V, not divided yet, in
// `attention_width` floats (zeros past the head size), then the maximum and the sum of weights.
constexpr int64_t attention_width(int32_t v_head_dim) { return (v_head_dim + 15) / 16 * 16; }
constexpr int64_t attention_state_floats(int32_t v_head_dim) { return attention_width(v_head_dim) + 16; }

// The partitions whose keys a row at `position` may see.
struct PartitionRange {
  int32_t first, end;
};
constexpr PartitionRange partitions_seen(int32_t position, int32_t window) {
  const int32_t oldest = window > 0 && position >= window ? position - window + 1 : 0;
  return {oldest / kPartitionKeys, position / kPartitionKeys + 1};
}

// Floats of one partition of one KV head, gathered.
int64_t gathered_floats(const PagedKv& kv);

struct AttentionKernels {
  // For KV heads kv_head .. kv_head + count - 1; a task of more than kPageStates (row, head) pairs for each KV head, or
  // one that reads gathered memory, takes count = 1, others up to attention_tile_rows / rows. scratch:
  // attention_scratch_floats, 64-byte aligned, as states and gathered memory are.
  void (*attend)(const AttentionArgs& args, const AttentionTask& task, int32_t kv_head, int32_t count, float* scratch);
  // Gathers one whole partition of one KV head.
  void (*gather)(const PagedKv& kv, const int32_t* block_table, int32_t kv_head, int32_t partition, float* gathered,
                 float* scratch);
  // Merges `count` partition states of a row, heads * state floats apart, and writes row `row` of out for one head.
  void (*merge_row)(const AttentionArgs& args, int32_t row, int32_t head, const float* states, int32_t count);
  // merge_attention_states of merge.h.
  void (*merge)(const float* states, int64_t stride, int32_t count, int32_t v_head_dim, float* out, float* lse);
};

// Most query rows that one task takes, and the scratch that one worker needs for such a task.
int32_t attention_tile_rows(int32_t heads, const PagedKv& kv);
int64_t attention_scratch_floats(int32_t heads, const PagedKv& kv);

const AttentionKernels& attention_kernels();  // for cpu_isa()

const AttentionKernels& attention_kernels_scalar();
const AttentionKernels& attention_kernels_avx2();
const AttentionKernels& attention_kernels_avx512();

}  // namespace quire
