#pragma once
// Kernels that do one thing as fast as a GPU can: what its limits are measured with.
#include <cstddef>
#include <cstdint>

#include "gpu/stream.h"

namespace quire::gpu {

// Memory is aligned to 16 bytes and its size a multiple of this.
constexpr size_t kLimitTileBytes = 64 << 10;

// How memory is walked: 16-byte loads of a thread in flight (4, 8 or 16), and blocks of the grid (0: as many as there
// are tiles, so that none has two).
struct ReadWay {
  int loads = 8;
  unsigned blocks = 0;
};
// sums [kReadSums], to which the sum of all 32-bit words is added in parts, once for each pass. Reads pass by the L1
// cache.
constexpr int kReadSums = 64;
void read_memory(const void* data, size_t bytes, int passes, const ReadWay& way, uint32_t* sums, Stream& stream);
void copy_memory(const void* source, void* destination, size_t bytes, Stream& stream);

// f32 multiply-adds from registers. out: a float for each of the blocks' threads.
constexpr int kMultiplyAddThreads = 256;
constexpr double kMultiplyAddOperations = 2.0 * 16 * 16;  // of a thread in one step
void multiply_add(int64_t steps, unsigned blocks, float* out, Stream& stream);

}  // namespace quire::gpu
