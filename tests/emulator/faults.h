#pragma once
// Kernels that do one thing wrong each, or all things right.
#include <cstdint>

#include "gpu/stream.h"

namespace quire::gpu {

// Each of `threads` threads hands its number to the next one through shared memory; out [threads].
enum class Handing : uint8_t { kWithBarrier, kWithoutBarrier, kWithinWave, kWithinWaveWithoutBarrier };
void hand_on(Handing handing, int threads, int32_t* out, Stream& stream);

enum class Mistake : uint8_t {
  kBarrierInBranch,      // half of the block waits
  kOtherBarrier,         // the halves wait at different places
  kReturnBeforeBarrier,  // one thread does
  kReturnBeforeShuffle,
  kShuffleInBranch,
  kSharedOverrun,  // of the launch's dynamic memory
  kStaticOverrun,  // of a shared variable
  kDeviceOverrun,  // of device memory
  kUninitialized,  // shared memory is read that nothing wrote
  kMisaligned,     // 16 bytes from an address that is none of 16
  kWaitForNobody,  // a loop that no other thread ends
  kLateRead,       // the next round's write may come before the last one's read
};
void make_mistake(Mistake mistake, int32_t* out, Stream& stream);  // out [128]

// Sums of a wave by shuffles, and ballots: out [3 * threads]
void sum_of_wave(int threads, int32_t* out, Stream& stream);
// Blocks wait for each other, the first for the last and so on. flags [2 * blocks], zeros.
void wait_for_opposite_block(int blocks, uint32_t* flags, Stream& stream);

}  // namespace quire::gpu
