#include "bench/gpu/limit_kernels.h"
#include "gpu/runtime.h"
#include "gpu/wave.h"

namespace quire::gpu {
namespace {

constexpr int kThreads = 256;

// Cached in L2 only: passes over a small set must not come from L1.
__device__ inline uint4 load_from_l2(const uint4* source) {
#if defined(__HIP_PLATFORM_AMD__)
  const auto* words = reinterpret_cast<const uint32_t*>(source);
  return make_uint4(__builtin_nontemporal_load(words), __builtin_nontemporal_load(words + 1),
                    __builtin_nontemporal_load(words + 2), __builtin_nontemporal_load(words + 3));
#else
  return __ldcg(source);
#endif
}

template <int kLoads>
__global__ void __launch_bounds__(kThreads) read_kernel(const uint4* data, int64_t tiles, int passes, uint32_t* sums) {
  uint32_t sum = 0;
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const uint4* from = data + tile * (kThreads * kLoads) + threadIdx.x;
      uint4 parts[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) parts[i] = load_from_l2(from + i * kThreads);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) sum += parts[i].x + parts[i].y + parts[i].z + parts[i].w;
    }
  }
#pragma unroll
  for (int mask = kWave / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (threadIdx.x % kWave == 0) atomicAdd(sums + (blockIdx.x + threadIdx.x / kWave) % kReadSums, sum);
}

template <int kLoads>
void launch_read(const void* data, size_t bytes, int passes, unsigned blocks, uint32_t* sums, Stream& stream) {
  const auto tiles = static_cast<int64_t>(bytes / (kThreads * kLoads * sizeof(uint4)));
  const unsigned grid = blocks > 0 && blocks < tiles ? blocks : static_cast<unsigned>(tiles);
  launch(stream, read_kernel<kLoads>, grid, kThreads, 0, static_cast<const uint4*>(data), tiles, passes, sums);
}

constexpr int kCopies = 4;  // of a thread

__global__ void __launch_bounds__(kThreads) copy_kernel(const uint4* source, uint4* destination) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kCopies) + threadIdx.x;
  uint4 parts[kCopies];
#pragma unroll
  for (int i = 0; i < kCopies; ++i) parts[i] = source[first + i * kThreads];
#pragma unroll
  for (int i = 0; i < kCopies; ++i) destination[first + i * kThreads] = parts[i];
}

__global__ void __launch_bounds__(kMultiplyAddThreads) multiply_add_kernel(int64_t steps, float factor, float* out) {
  constexpr int kChains = 16, kRounds = 16;
  float chains[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) chains[i] = static_cast<float>(threadIdx.x + i);
  for (int64_t step = 0; step < steps; ++step) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (int i = 0; i < kChains; ++i) chains[i] = fmaf(chains[i], factor, 1.0f);
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += chains[i];
  out[static_cast<int64_t>(blockIdx.x) * kMultiplyAddThreads + threadIdx.x] = sum;
}
static_assert(kMultiplyAddOperations == 2.0 * 16 * 16);

}  // namespace

void read_memory(const void* data, size_t bytes, int passes, const ReadWay& way, uint32_t* sums, Stream& stream) {
  if (way.loads == 4) {
    launch_read<4>(data, bytes, passes, way.blocks, sums, stream);
  } else if (way.loads == 8) {
    launch_read<8>(data, bytes, passes, way.blocks, sums, stream);
  } else {
    launch_read<16>(data, bytes, passes, way.blocks, sums, stream);
  }
}

void copy_memory(const void* source, void* destination, size_t bytes, Stream& stream) {
  const auto grid = static_cast<unsigned>(bytes / (kThreads * kCopies * sizeof(uint4)));
  launch(stream, copy_kernel, grid, kThreads, 0, static_cast<const uint4*>(source), static_cast<uint4*>(destination));
}

void multiply_add(int64_t steps, unsigned blocks, float* out, Stream& stream) {
  launch(stream, multiply_add_kernel, blocks, kMultiplyAddThreads, 0, steps, 0.5f, out);
}

}  // namespace quire::gpu
