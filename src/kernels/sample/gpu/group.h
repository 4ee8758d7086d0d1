#pragma once
// The blocks of one row, which wait for each other. Included by GPU sources only.
#include "kernels/sample/gpu/select.h"

namespace quire::gpu {

// A group of `blocks` blocks that are on the device at the same time.
class Group {
 public:
  __device__ Group(GroupState* state, Histogram* histograms, int blocks, int block)
      : blocks_(blocks), block_(block), state_(state), histograms_(histograms) {
    clear(histograms_[0]);
  }

  // What any block wrote before is seen by all after.
  __device__ void wait_for_all() {
    expected_ += static_cast<uint32_t>(blocks_);
    __syncthreads();
    if (threadIdx.x == 0) {
      device_fence();
      atomicAdd(&state_->arrived, 1u);
      while (load_fresh(&state_->arrived) < expected_) {
      }
      device_fence();
    }
    __syncthreads();
  }

  // The sum of all blocks' histograms. Three in device memory take turns: while one is used, slow blocks may still read
  // the last, and the next is cleared.
  template <bool kByMass>
  __device__ OwnBins sum(const LocalHistogram& local) {
    __syncthreads();
    Histogram& histogram = histograms_[turn_];
    turn_ = turn_ == 2 ? 0 : turn_ + 1;
    clear(histograms_[turn_]);
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < kBins; i += kSampleThreads) {
      const uint32_t found = local.counts[i];
      if (found == 0) continue;
      atomicAdd(&histogram.counts[i], found);
      if (kByMass) atomicAdd(&histogram.masses[i], (Wide{local.high_masses[i]} << kHalfBits) + local.low_masses[i]);
    }
    wait_for_all();
    OwnBins own;
#pragma unroll
    for (int i = 0; i < kOwnBins; ++i) {
      own.counts[i] = load_fresh(&histogram.counts[thread * kOwnBins + i]);
      own.weights[i] = kByMass ? load_fresh(&histogram.masses[thread * kOwnBins + i]) : own.counts[i];
    }
    return own;
  }

  __device__ void leave() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (atomicAdd(&state_->finished, 1u) + 1 == static_cast<uint32_t>(blocks_)) {
      state_->arrived = 0;
      state_->finished = 0;
    }
  }
  __device__ int blocks() const { return blocks_; }
  __device__ int block() const { return block_; }

 private:
  __device__ void clear(Histogram& histogram) {
    for (int i = block_ * kSampleThreads + static_cast<int>(threadIdx.x); i < kBins; i += blocks_ * kSampleThreads) {
      histogram.masses[i] = 0;
      histogram.counts[i] = 0;
    }
  }

  int blocks_, block_, turn_ = 0;
  uint32_t expected_ = 0;
  GroupState* state_;
  Histogram* histograms_;
};

}  // namespace quire::gpu
