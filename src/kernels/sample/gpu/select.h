#pragma once
// What top_k and top_p leave, by histograms: no sort of the vocabulary. Included by GPU sources only.
#include "kernels/sample/gpu/internal.h"

namespace quire::gpu {

// A block's own. Masses are split, as shared memory adds 32 bits at a time: each half of a chunk's sum has room in
// them.
struct LocalHistogram {
  uint32_t counts[kBins], low_masses[kBins], high_masses[kBins];
};
constexpr int kHalfBits = 32 - 13;
static_assert(kChunk == 1 << 13);

struct SelectScratch {
  LocalHistogram histogram;
  Wide waves[kSampleWaves];
  Wide weight_before;
  int bin;
  uint32_t population;
};

constexpr int kOwnBins = kBins / kSampleThreads;  // bins that a thread looks at
struct OwnBins {
  uint32_t counts[kOwnBins];
  Wide weights[kOwnBins];
};

// Selection among the elements of one block.
struct BlockScope {
  template <bool kByMass>
  __device__ OwnBins sum(const LocalHistogram& local) const {
    static_assert(!kByMass, "masses are for groups");
    __syncthreads();
    OwnBins own;
#pragma unroll
    for (int i = 0; i < kOwnBins; ++i) {
      own.counts[i] = local.counts[static_cast<int>(threadIdx.x) * kOwnBins + i];
      own.weights[i] = own.counts[i];
    }
    return own;
  }
};

constexpr int kLevels = 7;
constexpr int kLastBin = kBins - 1;
constexpr float kFineBins = 0x1p17f, kLargestFine = kBins * kBins - 1;  // the distance from the best: 5 + 17 bits

// Elements are in order by seven digits below kBins, most significant first: two of the distance from the best in fixed
// point, three of the logit's bits (the last two share one bit), two of the id. Different elements differ in one.
__device__ inline int digit(int level, float x, float best, int id) {
  uint32_t source = static_cast<uint32_t>(id);
  if (level < 2) {
    source = x >= best ? 0u : static_cast<uint32_t>(fminf((best - x) * kFineBins, kLargestFine));
  } else if (level < 5) {
    source = ~ordered_bits(x);
  }
  constexpr uint64_t kShifts = 0x00'0b'00'0a'15'00'0b;  // of each level, first the lowest byte
  return static_cast<int>(source >> (kShifts >> (8 * level) & 31) & static_cast<uint32_t>(kLastBin));
}
// exp(x) for x <= 0 in units of 2^-38: sums are exact, whatever their order.
constexpr float kMassUnit = 0x1p-38f;
__device__ inline Wide mass_of(float x) {
  return min(static_cast<Wide>(expf(x) * (1 / kMassUnit) + 0.5f), (Wide{1} << 2 * kHalfBits) - 1);
}

// Leaves in `kept` (one bit for each of the thread's elements) a head of the scope's kept elements, best first. By
// count: the smallest that has `wanted` elements, or up to `most` if that is less work. By mass, the sum of exp(x)
// where all x <= best = 0: the smallest that has the share `wanted` of `total`, or of the mass of all kept elements if
// that is 0. Elements 32 below the best have no mass to speak of. No x is larger than `best`, none is NaN. id(e): that
// of an element. Scope: a block or a group of blocks.
template <bool kByMass, int kElements, class Id, class Scope>
__device__ inline void keep_head(const float (&x)[kElements], Id&& id, float best, double wanted, uint32_t most,
                                 double total, Scope& scope, SelectScratch& scratch, uint32_t& kept) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWave, wave = thread / kWave;
  uint32_t undecided = kept, sure = 0;
  if (kByMass) {
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      if (!(x[e] > -31.99f)) undecided &= ~(1u << e);
    }
  }
  Wide before_all = 0;
#pragma unroll 1
  for (int level = 0; level < kLevels; ++level) {
    LocalHistogram& local = scratch.histogram;
    __syncthreads();  // may still be in use
    for (int i = thread; i < kBins; i += kSampleThreads) {
      local.counts[i] = 0;
      if (kByMass) local.low_masses[i] = 0, local.high_masses[i] = 0;
    }
    __syncthreads();
    int in_last_bin = 0;  // far below the best: often most of the row
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      if ((undecided >> e & 1u) == 0) continue;
      const float value = forget(x[e]);
      const int bin = digit(level, value, best, id(e));
      if (bin == kLastBin) {
        ++in_last_bin;
      } else {
        atomicAdd(&local.counts[bin], 1u);
      }
      if (kByMass) {
        const Wide mass = mass_of(value);
        atomicAdd(&local.low_masses[bin], static_cast<uint32_t>(mass) & ((1u << kHalfBits) - 1));
        atomicAdd(&local.high_masses[bin], static_cast<uint32_t>(mass >> kHalfBits));
      }
    }
    in_last_bin = wave_total(in_last_bin);
    if (lane == 0 && in_last_bin != 0) atomicAdd(&local.counts[kLastBin], static_cast<uint32_t>(in_last_bin));
    const OwnBins own = scope.template sum<kByMass>(local);

    // What is before each thread, and in all.
    Wide own_weight = 0;
#pragma unroll
    for (int i = 0; i < kOwnBins; ++i) own_weight += own.weights[i];
    Wide sum = own_weight;
#pragma unroll
    for (int distance = 1; distance < kWave; distance *= 2) {
      const Wide other = shuffle(sum, (lane - distance) & (kWave - 1));
      if (lane >= distance) sum += other;
    }
    if (lane == kWave - 1) scratch.waves[wave] = sum;
    if (thread == 0) scratch.bin = kLastBin, scratch.population = 1, scratch.weight_before = 0;
    __syncthreads();
    Wide before = before_all + sum - own_weight, all = 0;
#pragma unroll
    for (int i = 0; i < kSampleWaves; ++i) {
      const Wide other = scratch.waves[i];
      if (i < wave) before += other;
      all += other;
    }
    if (level == 0) {
      if (kByMass) {
        constexpr double kRounding = 1e-6;  // as sample/selection.cc
        wanted *= (total > 0 ? total / kMassUnit : static_cast<double>(all)) * (1.0 - kRounding);
        wanted = fmax(wanted, 0.5);
      } else if (static_cast<double>(all) <= wanted) {
        return;
      }
    }
    // The bin in which `wanted` is reached; if a rounded total is not, the last.
#pragma unroll
    for (int i = 0; i < kOwnBins; ++i) {
      const Wide after = before + own.weights[i];
      if (static_cast<double>(before) < wanted && static_cast<double>(after) >= wanted) {
        scratch.bin = thread * kOwnBins + i;
        scratch.weight_before = before;
        scratch.population = own.counts[i];
      }
      before = after;
    }
    __syncthreads();
    const int bin = scratch.bin;
    before_all = scratch.weight_before;
    // The whole bin is in: it is one element, or no more than may be.
    const bool whole = scratch.population == 1 || (!kByMass && before_all + scratch.population <= most);
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      if ((undecided >> e & 1u) == 0) continue;
      const int own_bin = digit(level, forget(x[e]), best, id(e));
      if (own_bin < bin || (own_bin == bin && whole)) sure |= 1u << e;
      if (own_bin != bin) undecided &= ~(1u << e);
    }
    if (whole) break;
  }
  kept = sure;
}

}  // namespace quire::gpu
