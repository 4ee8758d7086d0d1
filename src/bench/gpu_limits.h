#pragma once
// What the GPU can do at most.
#include <cstdint>
#include <vector>

#include "bench/device.h"

namespace quire {

// What to measure beside the rate of reading the memory.
struct GpuScope {
  bool cache = true, copy = true, f32 = true;
  std::vector<MatrixRate> products = {{8192, 8192, 8192}, {256, 28672, 4096}, {2048, 28672, 4096}, {8192, 28672, 4096}};
  int64_t most_bytes = int64_t{4} << 30;  // to measure the memory with
  int runs = 7;
  double run_seconds = 0.02;  // of each, or one repetition if that takes longer
};

// For a line beside another measurement: reading and one product, in a fifth of a second and 2 GiB.
GpuScope quick_gpu_scope();

// Of GPU 0, on a stream of its own. The best product is one before the card's power limit slows it down; the median is
// nearer to what it keeps up. Takes most_bytes of its memory, or half of what is free if that is less. Throws
// Error: kUnavailable if there is no GPU, kResourceExhausted if too little memory is free.
DeviceLimits measure_gpu_limits(const GpuScope& scope = {});

}  // namespace quire
