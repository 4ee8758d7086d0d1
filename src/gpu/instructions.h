#pragma once
// Single instructions that have no name in both vendors' languages. Included by GPU sources only.
#include "gpu/runtime.h"

namespace quire::gpu {

// What this thread has seen, those who see what it writes later see too.
__device__ inline void device_fence() {
#if defined(__HIP_PLATFORM_AMD__)
  __threadfence();
#else
  asm volatile("fence.acq_rel.gpu;" ::: "memory");  // __threadfence() orders more, and takes longer
#endif
}

// What other blocks have written while this kernel runs. T: one that a single instruction loads.
template <class T>
__device__ inline T load_fresh(const T* p) {
#if defined(__HIP_PLATFORM_AMD__)
  return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
  return *static_cast<const volatile T*>(p);
#endif
}

// Of x = 0 it is -inf. Subnormal numbers don't occur here.
__device__ inline float fast_log2(float x) {
#if defined(__HIP_PLATFORM_AMD__)
  return __log2f(x);
#else
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// Results below the smallest normal number are 0.
__device__ inline float exp2_fast(float x) {
#if defined(__HIP_PLATFORM_AMD__)
  return __builtin_amdgcn_exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// Within a few units in the last place of 1.
__device__ inline float tanh_fast(float x) { return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * x)); }

// x as it is, but what depends on it is computed again rather than kept in registers.
__device__ inline float forget(float x) {
#if defined(__HIP_PLATFORM_AMD__)
  asm volatile("" : "+v"(x));
#else
  asm volatile("" : "+f"(x));
#endif
  return x;
}

}  // namespace quire::gpu
