#pragma once
// What feeds tensor cores and goes with them: NVIDIA's, from compute capability 8.0 on. Their products are in
// gpu/matrix_instructions.h.
// Included by GPU sources only, and by those outside of HIP.
#include "gpu/instructions.h"
#include "gpu/matrix_instructions.h"
#include "gpu/numeric.h"
#include "gpu/wave.h"

#if !defined(__HIP_PLATFORM_AMD__)

namespace quire::gpu {

__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// 16 bytes from global to shared memory behind the thread's back; of them `bytes` are read and the rest are 0. The L2
// fetches whole lines at once, without which memory gives a seventh less.
__device__ inline void copy_async(uint32_t to, const void* from, int32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// Has the line of an address brought near.
__device__ inline void prefetch(const void* at) { asm volatile("prefetch.global.L1 [%0];" ::"l"(at)); }
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the newest kNewer committed groups of this thread are there.
template <int kNewer>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewer) : "memory");
}

// 16 bytes of shared memory that copies brought.
__device__ inline uint4 load_shared(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

// A barrier in shared memory whose phase ends with `count` arrivals; whoever waits for the phase's end sees what was
// written before them. Phases are told apart by their parity, the first one's is 0.
__device__ inline void start_barrier(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
__device__ inline void arrive(uint64_t* barrier) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ inline void wait_for_phase(uint64_t* barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n\t.reg .pred ended;\n\tmbarrier.test_wait.parity.shared.b64 ended, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, ended;\n\t}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8. Lane i gets elements
// 2 * (i % 4) and the next of row i / 4, or with `kTransposed` of column i / 4.
template <bool kTransposed>
__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t address) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
}

// Two floats rounded, the first in the low half.
__device__ inline uint32_t pack_pair(F16, float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline uint32_t pack_pair(BF16, float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

}  // namespace quire::gpu

#endif
