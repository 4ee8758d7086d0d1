#pragma once
// Blocks that run side by side and read each other's shared memory: clusters of NVIDIA's, from compute capability 9.0
// on. Elsewhere a block is alone in its cluster. Included by GPU sources only.
#include <cstdint>

#include "gpu/runtime.h"

namespace quire::gpu {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// A barrier of all threads of the cluster in two halves: who waits sees what the others wrote before they arrived.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// What `address`, of this block's shared memory, holds in block `rank` of the cluster.
__device__ inline float load_of_cluster(const float* address, int rank) {
  const auto own = static_cast<uint32_t>(__cvta_generic_to_shared(address));
  uint32_t other;
  float value;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(other) : "memory");
  return value;
}
#else
__device__ inline void cluster_arrive() {}
__device__ inline void cluster_wait() { __syncthreads(); }
__device__ inline float load_of_cluster(const float* address, int) { return *address; }
#endif

}  // namespace quire::gpu
