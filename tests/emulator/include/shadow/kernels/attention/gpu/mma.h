#pragma once
// The emulator's twin of src/kernels/attention/gpu/mma.h: the same functions, by lanes that meet.
#include "emulator/matrix.h"
#include "gpu/instructions.h"
#include "gpu/matrix_instructions.h"
#include "gpu/numeric.h"
#include "gpu/wave.h"

#if !defined(__HIP_PLATFORM_AMD__)

namespace quire::gpu {

inline uint32_t shared_address(const void* shared) { return emulator::shared_address_of(shared); }

EMULATOR_INLINE void copy_async(uint32_t to, const void* from, int32_t bytes) {
  emulator::copy_async(emulator::at_shared_address(to), from, bytes);
}
inline void prefetch(const void*) {}
inline void commit_copies() { emulator::commit_copies(); }
template <int kNewer>
inline void wait_for_copies() {
  emulator::wait_for_copies(kNewer);
}

EMULATOR_INLINE uint4 load_shared(uint32_t address) {
  return *static_cast<const uint4*>(emulator::at_shared_address(address));
}

EMULATOR_INLINE void start_barrier(uint64_t* barrier, uint32_t count) { emulator::phase_barrier_init(barrier, count); }
EMULATOR_INLINE void arrive(uint64_t* barrier) { emulator::phase_barrier_arrive(barrier); }
EMULATOR_INLINE void wait_for_phase(uint64_t* barrier, uint32_t parity) {
  emulator::phase_barrier_wait(barrier, parity);
}

template <bool kTransposed>
EMULATOR_INLINE void load_matrices(uint32_t (&to)[4], uint32_t address) {
  // Each lane reads the row that it has the address of, then rows are dealt out.
  const uint4 row = load_shared(address);
  const auto dealt = emulator::together<uint4, uint4>(row, emulator::deal_matrices<kTransposed>);
  to[0] = dealt.x, to[1] = dealt.y, to[2] = dealt.z, to[3] = dealt.w;
}

inline uint32_t pack_pair(F16, float low, float high) { return bits_of_pair<F16>(low, high); }
inline uint32_t pack_pair(BF16, float low, float high) { return bits_of_pair<BF16>(low, high); }

}  // namespace quire::gpu

#endif
