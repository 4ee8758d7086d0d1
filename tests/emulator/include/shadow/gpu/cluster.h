#pragma once
// The emulator's twin of src/gpu/cluster.h.
#include "gpu/runtime.h"

namespace quire::gpu {

EMULATOR_INLINE void cluster_arrive() { emulator::cluster_arrive(); }
EMULATOR_INLINE void cluster_wait() { emulator::cluster_wait(); }
EMULATOR_INLINE float load_of_cluster(const float* address, int rank) {
  return emulator::float_of_cluster(address, static_cast<unsigned>(rank));
}

}  // namespace quire::gpu
