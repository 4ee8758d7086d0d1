#include "emulator/faults.h"

#include "gpu/instructions.h"
#include "gpu/shared_memory.h"
#include "gpu/wave.h"

namespace quire::gpu {
namespace {

__device__ inline void order_wave() {
#if defined(__HIP_PLATFORM_AMD__)
  __builtin_amdgcn_wave_barrier();
#else
  __syncwarp();
#endif
}

__global__ void hand_on_kernel(Handing handing, int32_t* out) {
  int32_t* const shared = dynamic_shared_memory<int32_t>();
  const bool in_wave = handing == Handing::kWithinWave || handing == Handing::kWithinWaveWithoutBarrier;
  const auto thread = static_cast<int>(threadIdx.x), size = in_wave ? kWave : static_cast<int>(blockDim.x);
  shared[thread] = -1;
  __syncthreads();
  shared[thread] = thread;
  if (handing == Handing::kWithBarrier) __syncthreads();
  if (handing == Handing::kWithinWave) order_wave();
  out[thread] = shared[thread / size * size + (thread + 1) % size];
}

__global__ void mistake_kernel(Mistake mistake, int32_t* out) {
  __shared__ int32_t small[24];
  __shared__ int32_t counter;
  int32_t* const shared = dynamic_shared_memory<int32_t>();
  const auto thread = static_cast<int>(threadIdx.x);
  shared[thread] = thread;
  if (thread == 0) small[0] = counter = 0;
  __syncthreads();
  int32_t value = 0;
  switch (mistake) {
    case Mistake::kBarrierInBranch:
      if (thread < 64) __syncthreads();
      break;
    case Mistake::kOtherBarrier:
      if (thread < 64) {
        value = shared[127];
        __syncthreads();
      } else {
        __syncthreads();
        value = shared[0];
      }
      break;
    case Mistake::kReturnBeforeBarrier:
      if (thread == 77) return;
      __syncthreads();
      break;
    case Mistake::kReturnBeforeShuffle:
      if (thread == 5) return;
      value = shuffle(thread, 0);
      break;
    case Mistake::kShuffleInBranch:
      if (thread % 2 == 0) value = shuffle_xor(thread, 2);
      break;
    case Mistake::kSharedOverrun:
      value = shared[thread + 1];
      break;
    case Mistake::kStaticOverrun:
      if (thread == 0) {
        int32_t* end = small;
        asm volatile("" : "+r"(end));  // what the compiler sees through it takes for impossible
        end[24] = 1;
      }
      break;
    case Mistake::kDeviceOverrun:
      value = out[thread + 1];
      break;
    case Mistake::kUninitialized:
      value = small[thread % 2 * 3];
      break;
    case Mistake::kMisaligned:
      value = reinterpret_cast<const int4*>(shared + 1)->x;
      break;
    case Mistake::kWaitForNobody:
      while (load_fresh(&counter) < 1) {
      }
      break;
    case Mistake::kLateRead:
      value = shared[(thread + 1) % 128];
      shared[thread] = 0;
      break;
  }
  out[thread] = value;
}

__global__ void sum_kernel(int32_t* out) {
  const auto thread = static_cast<int>(threadIdx.x);
  int32_t sum = thread;
#pragma unroll
  for (int mask = kWave / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  int32_t before = thread;
  for (int distance = 1; distance < kWave; distance *= 2) {
    const int32_t other = shuffle_up(before, distance);
    if (thread % kWave >= distance) before += other;
  }
  out[3 * thread] = sum;
  out[3 * thread + 1] = before;
  out[3 * thread + 2] = shuffle(thread, (thread + 3) % kWave);
}

__global__ void wait_kernel(uint32_t* flags) {
  __shared__ uint32_t seen;
  if (threadIdx.x == 0) {
    seen = blockIdx.x;
    atomicAdd(flags + blockIdx.x, 1u);
    const uint32_t next = gridDim.x - 1 - blockIdx.x;
    while (load_fresh(flags + next) == 0) {
    }
    device_fence();
    flags[gridDim.x + blockIdx.x] = seen;
  }
}

}  // namespace

void hand_on(Handing handing, int threads, int32_t* out, Stream& stream) {
  launch(stream, hand_on_kernel, dim3(1), dim3(static_cast<unsigned>(threads)), static_cast<size_t>(threads) * 4,
         handing, out);
}

void make_mistake(Mistake mistake, int32_t* out, Stream& stream) {
  launch(stream, mistake_kernel, dim3(1), dim3(128), 128 * sizeof(int32_t), mistake, out);
}

void sum_of_wave(int threads, int32_t* out, Stream& stream) {
  launch(stream, sum_kernel, dim3(1), dim3(static_cast<unsigned>(threads)), 0, out);
}

void wait_for_opposite_block(int blocks, uint32_t* flags, Stream& stream) {
  launch(stream, wait_kernel, dim3(static_cast<unsigned>(blocks)), dim3(128), 0, flags);
}

}  // namespace quire::gpu
