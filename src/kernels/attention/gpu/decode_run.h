#pragma once
// How the units of all rows of a lane (decode.cu) are dealt out to its blocks. Included by decode.cu outside of HIP.
#include "gpu/wave.h"
#include "kernels/attention/gpu/attention.h"
#include "kernels/attention/gpu/mma.h"
#include "kernels/attention/gpu/tile.h"

#if !defined(__HIP_PLATFORM_AMD__)

namespace quire::gpu {

constexpr int32_t kWaves = 4, kChunk = 16, kUnit = kWaves * kChunk;
constexpr int kThreads = kWaves * kWave;
// Contexts up to so many units are not worth the merging; longer ones are cut into no smaller parts than the other.
constexpr int32_t kWholeUnits = 4, kLeastUnits = 2;

// The units of a row that a decode of `kv_len` keys sees.
__device__ inline int32_t first_unit(int32_t kv_len, int32_t window) { return oldest_key(kv_len - 1, window) / kUnit; }
__device__ inline int32_t unit_count(int32_t kv_len, int32_t window) {
  return kv_len <= 0 ? 0 : (kv_len - 1) / kUnit + 1 - first_unit(kv_len, window);
}

// A place in the sequence of units.
struct Place {
  int32_t request = 0, row = 0;  // row: of the request
  int32_t unit = 0, end = 0;     // of this row, and where it ends
  int32_t kv_len = 0, oldest = 0;

  __device__ void enter(const AttentionRequests& requests, int32_t window) {
    kv_len = requests.kv_lens[request];
    oldest = oldest_key(kv_len - 1, window);
    unit = oldest / kUnit;
    end = (kv_len - 1) / kUnit + 1;
  }
  __device__ int32_t first() const { return oldest / kUnit; }

  // To the next request with keys, if there is one.
  __device__ void next_request(const AttentionRequests& requests, int32_t window) {
    row = 0;
    do {
      if (++request >= requests.requests) return;
    } while (requests.kv_lens[request] <= 0);
    enter(requests, window);
  }

  // To the next unit. True if that is one of another row.
  __device__ bool advance(const AttentionRequests& requests, int32_t rows, int32_t window) {
    if (++unit < end) return false;
    if (++row < rows) {
      unit = first();
    } else {
      next_request(requests, window);
    }
    return true;
  }
};

// What a block has of the units.
struct Run {
  int32_t units;  // that each block gets but the last: rounded up, so that rows of a power of two are cut evenly
  int32_t begin, end;
  Place place;  // of the first
};

struct SharedRun {
  int32_t sums[kWaves], largest[kWaves];
  int32_t begin, end, request, row, offset;
};

// Finds the run of a block of its lane. All threads.
__device__ inline Run find_run(const AttentionRequests& requests, int32_t block, int32_t blocks, int32_t rows,
                               int32_t window, int32_t block_size, SharedRun& shared) {
  const auto thread = static_cast<int32_t>(threadIdx.x), lane = thread % kWave, wave = thread / kWave;
  const int32_t each = (requests.requests + kThreads - 1) / kThreads;
  const int32_t first = min(thread * each, requests.requests), last = min(first + each, requests.requests);
  int32_t mine = 0, largest = 0;
  for (int32_t r = first; r < last; ++r) {
    const int32_t kv_len = requests.kv_lens[r], units = unit_count(kv_len, window);
    mine += units;
    largest = max(largest, units);
    // What the block needs first of its row's table may be this: it comes while the run is being found.
    if (units > 0 && each == 1) {
      prefetch(requests.block_tables + requests.block_table_rows[r] * requests.block_table_stride +
               first_unit(kv_len, window) * kUnit / block_size);
    }
  }
  int32_t before = mine;
#pragma unroll
  for (int distance = 1; distance < kWave; distance *= 2) {
    const int32_t other = shuffle_up(before, distance);
    if (lane >= distance) before += other;
    largest = max(largest, shuffle_xor(largest, distance));
  }
  if (lane == kWave - 1) {
    shared.sums[wave] = before;
    shared.largest[wave] = largest;
  }
  __syncthreads();
  before -= mine;
  int32_t total = 0;
#pragma unroll
  for (int w = 0; w < kWaves; ++w) {
    if (w < wave) before += shared.sums[w];
    total += shared.sums[w];
    largest = max(largest, shared.largest[w]);
  }
  total *= rows;
  const bool whole = largest <= kWholeUnits;
  Run run;
  run.units = max((total + blocks - 1) / blocks, whole ? 1 : kLeastUnits);
  const int32_t begin = min(block * run.units, total), end = min(begin + run.units, total);
  if (thread == 0) {
    if (begin == total) shared.begin = total;
    if (end == total) shared.end = total;
  }
  // The thread that counted the requests of a bound finds its place there.
#pragma unroll
  for (int bound = 0; bound < 2; ++bound) {
    const int32_t at = bound == 0 ? begin : end;
    if (at < before * rows || at >= (before + mine) * rows) continue;
    int32_t passed = before;
    for (int32_t r = first; r < last; ++r) {
      const int32_t units = unit_count(requests.kv_lens[r], window);
      if (at >= (passed + units) * rows) {
        passed += units;
        continue;
      }
      const int32_t within = at - passed * rows;
      int32_t row = within / units, offset = within % units, place = at;
      if (whole && offset > 0) {  // a row belongs to the block in whose run it begins
        place += units - offset;
        ++row;
        offset = 0;
      }
      if (bound == 0) {
        shared.begin = place;
        shared.request = r;
        shared.row = row;
        shared.offset = offset;
      } else {
        shared.end = place;
      }
      break;
    }
  }
  __syncthreads();
  run.begin = shared.begin;
  run.end = shared.end;
  if (run.begin < run.end) {
    run.place.request = shared.request;
    run.place.row = shared.row;
    if (run.place.row == rows) {
      run.place.next_request(requests, window);
    } else {
      run.place.enter(requests, window);
      run.place.unit += shared.offset;
    }
  }
  return run;
}

}  // namespace quire::gpu

#endif
