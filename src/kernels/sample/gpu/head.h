#pragma once
// The best few of a row without waiting: each block leaves those of its chunk, the last one takes the best of these.
// Included by GPU sources only.
#include "kernels/sample/gpu/select.h"

namespace quire::gpu {

struct HeadScratch {
  SelectScratch select;
  Wide found[kSlots], sorted[kSlots];
  uint32_t counts[kShortChunks];
  float maxima[kSampleWaves];
  int count;
};

// Writes the best `wanted` (at most kShortHead) of the kept elements of the chunk, and perhaps a few more, to `head`
// [kSlots] in any order, and their number. `best`: the chunk's. What is written is complete for thread 0.
__device__ inline void publish_head(const float (&v)[kPerThread], int first, uint32_t kept, float best, uint32_t wanted,
                                    HeadScratch& scratch, Wide* head, uint32_t& count) {
  // Of the threads' largest logits the `wanted` best: their smallest is a bound that as many logits reach and not many
  // more do.
  BlockScope scope;
  float highest[1] = {-infinity()};
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) highest[0] = fmaxf(highest[0], (kept >> e & 1u) != 0 ? v[e] : -infinity());
  uint32_t among = kept != 0 ? 1 : 0;
  const auto thread_id = [](int) { return static_cast<int>(threadIdx.x); };
  keep_head<false>(highest, thread_id, best, wanted, wanted, 0.0, scope, scratch.select, among);
  const bool enough = __syncthreads_count(static_cast<int>(among)) >= static_cast<int>(wanted);
  const float bound = -block_largest(among != 0 ? -highest[0] : -infinity(), scratch.maxima);
  uint32_t above = kept;
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) {
    if (v[e] < bound) above &= ~(1u << e);
  }
  if (enough && block_total(static_cast<int>(__popc(above)), reinterpret_cast<int*>(scratch.maxima)) <= kSlots) {
    kept = above;
  } else {
    keep_head<false>(
        v, [&](int e) { return id_of(first, e); }, best, wanted, kSlots, 0.0, scope, scratch.select, kept);
  }
  if (threadIdx.x == 0) scratch.count = 0;
  __syncthreads();
  int place = kept != 0 ? atomicAdd(&scratch.count, __popc(kept)) : 0;
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) {
    if ((kept >> e & 1u) != 0) head[place++] = pack(v[e], id_of(first, e));
  }
  __syncthreads();
  if (threadIdx.x == 0) count = static_cast<uint32_t>(scratch.count);
}

// As merge_heads(), of chunks with at most kStride.
template <int kElements, int kStride>
__device__ inline void merge_slots(const Wide* heads, int chunks, float reference, float factor, float floor,
                                   float best, uint32_t wanted, HeadScratch& scratch) {
  static_assert(kElements * kSampleThreads == kShortChunks * kStride);
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t kept = 0;
  Wide packed[kElements];
#pragma unroll
  for (int e = 0; e < kElements; ++e) {  // all loads first
    const int chunk = (e * kSampleThreads + thread) / kStride, slot = thread % kStride;
    packed[e] = pack(-infinity(), 0);
    if (chunk < chunks && static_cast<uint32_t>(slot) < scratch.counts[chunk]) {
      packed[e] = load_fresh(heads + chunk * kSlots + slot);
      kept |= 1u << e;
    }
  }
  float x[kElements];
  int32_t ids[kElements];
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    x[e] = (packed_logit(packed[e]) - reference) * factor;
    ids[e] = packed_id(packed[e]);
    if (!(x[e] >= floor)) kept &= ~(1u << e);
  }
  BlockScope scope;
  keep_head<false>(
      x, [&](int e) { return ids[e]; }, best, wanted, kSlots, 0.0, scope, scratch.select, kept);
  int place = kept != 0 ? atomicAdd(&scratch.count, __popc(kept)) : 0;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    if ((kept >> e & 1u) != 0) scratch.found[place++] = pack(x[e], ids[e]);
  }
}

// Sorts the best `wanted` of what the chunks published, as (logit - reference) * factor, into scratch.sorted, best
// first. What is below `floor` is out; `best` is the largest. Returns how many there are, at most `wanted`.
__device__ inline int merge_heads(const Wide* heads, const uint32_t* counts, int chunks, float reference, float factor,
                                  float floor, float best, uint32_t wanted, HeadScratch& scratch) {
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (thread < chunks) scratch.counts[thread] = load_fresh(counts + thread);
  if (thread == 0) scratch.count = 0;
  constexpr int kFew = kSlots / 4;
  const bool many = __syncthreads_or(thread < chunks && scratch.counts[thread] > kFew ? 1 : 0) != 0;
  if (many) {
    merge_slots<kPerThread, kSlots>(heads, chunks, reference, factor, floor, best, wanted, scratch);
  } else {
    merge_slots<kPerThread / 4, kFew>(heads, chunks, reference, factor, floor, best, wanted, scratch);
  }
  __syncthreads();
  const int found = scratch.count;
  if (thread < found) {
    const Wide own = scratch.found[thread];
    int place = 0;
#pragma unroll 8
    for (int i = 0; i < found; ++i) place += scratch.found[i] > own ? 1 : 0;
    scratch.sorted[place] = own;
  }
  __syncthreads();
  return min(found, static_cast<int>(wanted));
}

}  // namespace quire::gpu
