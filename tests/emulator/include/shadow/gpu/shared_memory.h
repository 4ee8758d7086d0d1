#pragma once
// The emulator's twin of src/gpu/shared_memory.h.
#include "emulator/shared_memory.h"

namespace quire::gpu {

template <class T>
inline T* dynamic_shared_memory() {
  return static_cast<T*>(emulator::dynamic_shared_memory());
}

}  // namespace quire::gpu
