#pragma once
// A wave (a warp of 32 lanes with NVIDIA, a wavefront of 64 with AMD's CDNA): its size and what its lanes do together.
// Included by GPU sources only. All lanes of the wave take part.
#include "gpu/runtime.h"

namespace quire::gpu {

#if defined(__HIP_PLATFORM_AMD__)
constexpr int kWave = 64;
template <class T>
__device__ inline T shuffle_xor(T value, int mask) {
  return __shfl_xor(value, mask, kWave);
}
template <class T>
__device__ inline T shuffle(T value, int lane) {
  return __shfl(value, lane, kWave);
}
template <class T>
__device__ inline T shuffle_up(T value, int distance) {
  return __shfl_up(value, static_cast<unsigned>(distance), kWave);
}
#else
constexpr int kWave = 32;
template <class T>
__device__ inline T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <class T>
__device__ inline T shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
template <class T>
__device__ inline T shuffle_up(T value, int distance) {
  return __shfl_up_sync(0xffffffffu, value, static_cast<unsigned>(distance));
}
#endif

// The second number of __launch_bounds__ for a kernel of which `blocks` shall fit on a multiprocessor: those themselves
// with NVIDIA; the waves of each of the four SIMDs with AMD.
constexpr int resident([[maybe_unused]] int threads, int blocks) {
#if defined(__HIP_PLATFORM_AMD__)
  const int waves = blocks * threads / (4 * kWave);
  return waves < 1 ? 1 : waves;
#else
  return blocks;
#endif
}

// The wave's lanes see what the others have written to shared memory before.
__device__ inline void sync_wave() {
#if defined(__HIP_PLATFORM_AMD__)
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
#else
  __syncwarp();
#endif
}

// In a kernel launched by launch_overlapping() or launch_early() (gpu/runtime.h): waits until the kernels before are
// done and their writes are seen.
__device__ inline void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
// The next kernel may be made ready, and begin with what does not depend on this one, once all blocks have called this
// or returned. Before the own wait this lets kernels queue up that take the place of working ones: for kernels in front
// of one that has much to read ahead.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Over groups of kLanes neighbouring lanes; every lane gets the result.
template <int kLanes = kWave>
__device__ inline float wave_sum(float value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
template <int kLanes = kWave>
__device__ inline float wave_max(float value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}

// Over the block, in a fixed order; every thread gets the result. scratch: kThreads / kWave + 1 floats of shared
// memory.
template <int kThreads>
__device__ inline float block_sum(float value, float* scratch) {
  constexpr int kWaves = kThreads / kWave;
  value = wave_sum(value);
  __syncthreads();  // scratch may still be in use
  if (threadIdx.x % kWave == 0) scratch[threadIdx.x / kWave] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWaves; ++i) sum += scratch[i];
  return sum;
}

}  // namespace quire::gpu
