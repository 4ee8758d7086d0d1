#pragma once
// The dynamic shared memory of a block. Included by GPU sources only.
#include "gpu/runtime.h"

namespace quire::gpu {

// Begins at a multiple of 256; of as many bytes as the launch says.
template <class T>
__device__ inline T* dynamic_shared_memory() {
  extern __shared__ __align__(256) unsigned char memory_of_launch[];
  return reinterpret_cast<T*>(memory_of_launch);
}

}  // namespace quire::gpu
