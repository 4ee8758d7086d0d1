#pragma once
// What the sampling kernels have in common. A row is cut into chunks of kChunk logits; a block holds one chunk, 16
// logits in the registers of each thread. Included by GPU sources only.
#include <cstdint>

#include "gpu/instructions.h"
#include "gpu/wave.h"
#include "kernels/sample/gpu/sample.h"

namespace quire::gpu {

constexpr int kSampleThreads = 512;
constexpr int kQuads = 4, kPerThread = 4 * kQuads;  // 4 neighbouring logits share a random block and a load
constexpr int kChunk = kSampleThreads * kPerThread;
constexpr int kSampleWaves = kSampleThreads / kWave;
constexpr int chunks_of(int vocab) { return (vocab + kChunk - 1) / kChunk; }

using Wide = unsigned long long;  // what 64-bit atomics take

__device__ inline float infinity() { return __uint_as_float(0x7f800000); }
__device__ inline int quad_id(int first, int quad) {
  return first + (quad * kSampleThreads + static_cast<int>(threadIdx.x)) * 4;
}
__device__ inline int id_of(int first, int element) { return quad_id(first, element / 4) + element % 4; }

// -inf past the end of the row.
__device__ inline void load_chunk(const float* row, int first, int vocab, float (&v)[kPerThread]) {
  const bool aligned = reinterpret_cast<uintptr_t>(row) % 16 == 0;
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    const int id = quad_id(first, quad);
    if (aligned && id + 4 <= vocab) {
      const float4 x = *reinterpret_cast<const float4*>(row + id);
      v[quad * 4] = x.x, v[quad * 4 + 1] = x.y, v[quad * 4 + 2] = x.z, v[quad * 4 + 3] = x.w;
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) v[quad * 4 + k] = id + k < vocab ? row[id + k] : -infinity();
    }
  }
}

// Maps floats to integers in the same order; both zeros are one. Not for NaN.
__device__ inline uint32_t ordered_bits(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
__device__ inline float from_ordered_bits(uint32_t ordered) {
  return __uint_as_float(ordered ^ (ordered >> 31 ? 0x80000000u : 0xffffffffu));
}
// A logit and its id in one number: the larger the better. All ones stand for NaN.
__device__ inline Wide pack(float x, int id) { return Wide{ordered_bits(x)} << 32 | ~static_cast<uint32_t>(id); }
__device__ inline float packed_logit(Wide packed) { return from_ordered_bits(static_cast<uint32_t>(packed >> 32)); }
__device__ inline int packed_id(Wide packed) { return static_cast<int>(~static_cast<uint32_t>(packed)); }

template <class T>
__device__ inline T larger(T a, T b) {
  return a > b ? a : b;
}
template <class T>
__device__ inline T wave_largest(T value) {
#pragma unroll
  for (int mask = kWave / 2; mask > 0; mask /= 2) value = larger(value, shuffle_xor(value, mask));
  return value;
}
template <class T>
__device__ inline T wave_total(T value) {
#pragma unroll
  for (int mask = kWave / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// Over the block; every thread gets the result. scratch: kSampleWaves of shared memory.
template <class T>
__device__ inline T block_largest(T value, T* scratch) {
  value = wave_largest(value);
  __syncthreads();  // scratch may still be in use
  if (threadIdx.x % kWave == 0) scratch[threadIdx.x / kWave] = value;
  __syncthreads();
  value = scratch[0];
#pragma unroll
  for (int i = 1; i < kSampleWaves; ++i) value = larger(value, scratch[i]);
  return value;
}
template <class T>
__device__ inline T block_total(T value, T* scratch) {
  value = wave_total(value);
  __syncthreads();
  if (threadIdx.x % kWave == 0) scratch[threadIdx.x / kWave] = value;
  __syncthreads();
  value = scratch[0];
#pragma unroll
  for (int i = 1; i < kSampleWaves; ++i) value += scratch[i];
  return value;
}

// The largest logit of the thread, the lowest id on ties; a NaN is larger than all.
__device__ inline Wide thread_best(const float (&v)[kPerThread], int first) {
  float best = -infinity();
  int id = id_of(first, 0);
  bool nan = false;
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) {
    nan |= v[e] != v[e];
    if (v[e] > best) best = v[e], id = id_of(first, e);
  }
  return nan ? ~Wide{0} : pack(best, id);
}

}  // namespace quire::gpu
