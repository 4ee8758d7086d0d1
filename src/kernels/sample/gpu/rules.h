#pragma once
// What a request's parameters do to its logits (sample/logits_rules.h), on the chunk that a block holds: it looks at
// all ids that the rules name and picks those that are its own. Included by GPU sources only.
#include "kernels/sample/gpu/chunk.h"

namespace quire::gpu {

constexpr uint32_t kSeen = 1u << 31, kMasked = 1u << 30, kAllowed = 1u << 29, kCount = kAllowed - 1;

union RulesScratch {
  uint32_t words[kChunk];  // of each logit: flags, and how often the output has it
  float values[kChunk];
};

// fn(i, place) for the ids that are in this chunk.
template <class Fn>
__device__ inline void for_each_in_chunk(const int32_t* ids, int32_t n, int first, Fn&& fn) {
#pragma unroll 4
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < n; i += kSampleThreads) {
    const auto place = static_cast<uint32_t>(ids[i] - first);
    if (place < static_cast<uint32_t>(kChunk)) fn(i, place);
  }
}
__device__ inline int place_of(int element) { return id_of(0, element); }

// Adds as the CPU does, which rounds the product.
__device__ inline float penalty_of(double frequency, double presence, uint32_t count) {
#if defined(__HIP_PLATFORM_AMD__)
#pragma clang fp contract(off)
  const double product = frequency * static_cast<double>(count);
  return static_cast<float>(product + presence);
#else
  return static_cast<float>(__dadd_rn(__dmul_rn(frequency, static_cast<double>(count)), presence));
#endif
}

// sample/logits_rules.cc on the chunk. Biases come first, which makes no difference: -inf stays -inf.
__device__ inline void apply_rules(const SampleArgs& args, const SampleRow& row, int first, float (&v)[kPerThread],
                                   RulesScratch& scratch) {
  if (row.biases > 0) {
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) scratch.values[place_of(e)] = v[e];
    __syncthreads();
    for_each_in_chunk(args.bias_ids + row.bias_begin, row.biases, first, [&](int32_t i, uint32_t place) {
      atomicAdd(&scratch.values[place], args.bias_values[row.bias_begin + i]);
    });
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) v[e] = scratch.values[place_of(e)];
    __syncthreads();
  }
  if (row.allowed + row.masked + row.prompt_tokens + row.output_tokens == 0) return;
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) scratch.words[place_of(e)] = 0;
  __syncthreads();
  const auto flag = [&](const int32_t* ids, int32_t n, uint32_t bit) {
    for_each_in_chunk(ids, n, first, [&](int32_t, uint32_t place) { atomicOr(&scratch.words[place], bit); });
  };
  flag(args.ids + row.allowed_begin, row.allowed, kAllowed);
  flag(args.ids + row.masked_begin, row.masked, kMasked);
  flag(args.tokens + row.tokens_begin, row.prompt_tokens, kSeen);
  for_each_in_chunk(args.tokens + row.tokens_begin + row.prompt_tokens, row.output_tokens, first,
                    [&](int32_t, uint32_t place) { atomicAdd(&scratch.words[place], 1u); });
  __syncthreads();
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) {
    const uint32_t word = scratch.words[place_of(e)], count = word & kCount;
    if ((row.allowed > 0 && (word & kAllowed) == 0) || (word & kMasked) != 0) v[e] = -infinity();
    if ((word & (kSeen | kCount)) != 0 && row.repetition_penalty != 1.0f) {
      v[e] = v[e] > 0 ? v[e] / row.repetition_penalty : v[e] * row.repetition_penalty;
    }
    if (count != 0) v[e] -= penalty_of(row.frequency_penalty, row.presence_penalty, count);
  }
}

}  // namespace quire::gpu
