// Products of few rows by NVIDIA's tensor cores, from compute capability 9.0 on (others run ../small_rows.cu).
#include <algorithm>

#include "gpu/cluster.h"
#include "gpu/shared_memory.h"
#include "gpu/vector.h"
#include "kernels/attention/gpu/mma.h"
#include "kernels/linear/gpu/small_rows.h"

//
// The weights are the left operand of the tensor cores' products, so a tile of 16 rows of w meets 8 rows of x. A
// block has 8 warps side by side along k. Each keeps x of its columns (together a slice of k) in registers while tiles
// of w stream by: it copies pieces of 16 rows by 128 bytes into a ring of its own in shared memory and waits for nobody
// until its tile is done; then the warps' sums are added. The two blocks of a cluster have a half of k each; they meet
// after a group of tiles, and each finishes every other one.
//
// Which k a lane's 16 bytes hold is the same for w and x, so the order in which the instruction wants k doesn't matter.
namespace quire::gpu {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32, kTile = 16, kColumns = 64, kRun = kWarps * kColumns;
constexpr int kStageBytes = kTile * kColumns * 2;
constexpr int kGroup = 4;   // tiles between meetings of a cluster
constexpr int kDepth = 4;   // runs of k that a slice has
constexpr int kStages = 4;  // of a warp's ring
constexpr int kBlocksPerSm = 2;
constexpr int kRows = 8;
constexpr int kRanks = 2;  // blocks of a cluster
static_assert(kRows == kSmallRowsOnClusters);

struct Work {
  const void *x, *w;
  void* y;
  int64_t ldx, ldy, upper;  // upper: elements of w from a tile's row 0 to its row 8
  int m, n, k, tiles, tile_rows;
  DType y_type;
  SmallRowsEnd end;
};

// Of each warp, sums of a tile by [row of x][row of w]; the stride keeps lanes on different banks.
constexpr int kSumStride = 20;
constexpr int kSumFloats = kRows * kSumStride, kOut = kRows * kTile;

constexpr size_t kSharedBytes = kWarps * kStages * kStageBytes +
                                (2 * kWarps * kSumFloats + 2 * kGroup * kOut) * sizeof(float) + 2 * sizeof(uint64_t);

template <class T>
__device__ inline float rounded(float value) {
  return to_float(from_float<T>(value));
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2) small_rows_kernel(const Work work) {
  auto* const shared = dynamic_shared_memory<uint4>();
  float* const sums = reinterpret_cast<float*>(shared + kWarps * kStages * kStageBytes / 16);
  float* const group_sums = sums + 2 * kWarps * kSumFloats;
  // Phases end when all warps have written their sums of a tile.
  auto* const full = reinterpret_cast<uint64_t*>(group_sums + 2 * kGroup * kOut);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int rank = static_cast<int>(blockIdx.x) % kRanks;  // in the cluster

  if (thread == 0) {
    start_barrier(&full[0], kWarps);
    start_barrier(&full[1], kWarps);
  }
  __syncthreads();

  // This block's tiles, first and the next count - 1, and its runs of k.
  const int team = static_cast<int>(blockIdx.x) / kRanks, teams = static_cast<int>(gridDim.x) / kRanks;
  const int64_t tiles = work.tiles;
  const int first = static_cast<int>(tiles * team / teams);
  const int count = static_cast<int>(tiles * (team + 1) / teams) - first;
  const int runs = (work.k + kRun - 1) / kRun, run_begin = runs * rank / kRanks, run_end = runs * (rank + 1) / kRanks;

  // Copies: a lane has 16 bytes of rows lane / 8, and 4, 8, 12 more.
  const int copy_row = lane / 8, copy_column = lane % 8;
  const uint32_t ring = shared_address(shared) + static_cast<uint32_t>(warp * kStages * kStageBytes);
  const uint32_t copy_to = ring + static_cast<uint32_t>(copy_row * 128 + (copy_column ^ (copy_row % 2 * 4)) * 16);
  const int64_t row4 = int64_t{4} * work.k;
  int copy_group = 0, copy_tile = 0, copy_run = run_begin, copy_k = 0, copy_left = 0, rows_left = 0;
  bool more = run_begin < run_end;
  const int slices = max(1, (run_end - run_begin + kDepth - 1) / kDepth);
  const T* from = nullptr;
  const auto start_unit = [&] {
    const int tile = first + copy_group + copy_tile;
    copy_k = copy_run * kRun + warp * kColumns + copy_column * 8;
    copy_left = min(kDepth, run_end - copy_run);
    from = static_cast<const T*>(work.w) + (static_cast<int64_t>(tile) * work.tile_rows + copy_row) * work.k + copy_k;
    rows_left = work.end == SmallRowsEnd::kSiluMul ? kTile : work.n - tile * kTile - copy_row;
  };
  // The next piece, or nothing if there are no more. Tiles of a group pass by for each slice of k.
  const auto copy = [&](uint32_t slot) {
    if (more) {
      const bool inside = copy_k < work.k;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const T* source = from + (i % 2) * row4 + (i / 2) * work.upper;
        const uint32_t to = copy_to + slot + static_cast<uint32_t>(i * 512);
        const int bytes = inside && i * 4 < rows_left ? 16 : 0;
        copy_async(to, source, bytes);
      }
      from += kRun;
      copy_k += kRun;
      if (--copy_left == 0) {
        if (++copy_tile == kGroup || copy_group + copy_tile == count) {
          copy_tile = 0;
          copy_run += kDepth;
          if (copy_run >= run_end) {
            copy_run = run_begin;
            copy_group += kGroup;
            more = copy_group < count;
          }
        }
        start_unit();
      }
    }
    commit_copies();
  };

  start_unit();
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) copy(static_cast<uint32_t>(i * kStageBytes));
  let_next_kernel_start();
  wait_for_previous_kernel();

  const int g = lane / 4, t = lane % 4;
  const uint32_t read_from = ring + static_cast<uint32_t>(g * 128 + (t ^ (g % 2 * 4)) * 16);
  uint4 x[kDepth][2];
  int x_run = -1;
  const auto load_x = [&](int run) {
    if (run == x_run) return;
    x_run = run;
    const int column = run * kRun + warp * kColumns + t * 8;
    const T* source = static_cast<const T*>(work.x) + g * work.ldx + column;
#pragma unroll
    for (int i = 0; i < kDepth * 2; ++i) {
      const int further = i / 2 * kRun + i % 2 * 32;
      x[i / 2][i % 2] = make_uint4(0, 0, 0, 0);
      if (g < work.m && column + further < work.k && run + i / 2 < run_end) {
        x[i / 2][i % 2] = __ldcg(reinterpret_cast<const uint4*>(source + further));
      }
    }
  };

  // A tile's sums of the warps are added while the warps are at the next one, so that none waits for the slowest.
  uint32_t phase = 0;                 // of the unit at hand; its low bit is the buffer
  int last_tile = 0, last_group = 0;  // of the unit before
  bool fresh = false, ends = false;   // a group's sums start, or end, with it
  const auto add_warps = [&] {
    const uint32_t before = phase - 1;
    wait_for_phase(&full[before % 2], before / 2 % 2);
    if (thread >= kOut) return;
    const float* const buffer = sums + before % 2 * kWarps * kSumFloats;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      sum += buffer[i * kSumFloats + thread / kTile * kSumStride + thread % kTile];
    }
    float& slot = group_sums[(last_group / kGroup % 2 * kGroup + last_tile) * kOut + thread];
    slot = fresh ? sum : slot + sum;
  };

  // A group's tiles are finished by their ranks in turn, an output or more a thread.
  constexpr int kEach = (kGroup * kOut + kRanks * kThreads - 1) / (kRanks * kThreads);
  float before[kEach] = {};
  int pending = -1;  // first tile of the group that is to be finished
  const auto place_of = [&](int i, int& tile, int& row, int& column) {
    const int item = i * kThreads + thread;
    tile = item / kOut * kRanks + rank, row = item % kOut / kTile, column = item % kTile;
    return tile < min(kGroup, count - pending) && row < work.m;
  };
  const auto end_group = [&](int group) {
    pending = group;
    cluster_arrive();
    if (work.end != SmallRowsEnd::kAdd) return;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      int tile, row, column;
      if (!place_of(i, tile, row, column)) continue;
      const int64_t at = static_cast<int64_t>(first + group + tile) * kTile + column;
      if (at < work.n) before[i] = __ldcg(static_cast<const float*>(work.y) + row * work.ldy + at);
    }
  };
  const auto finish_group = [&] {
    cluster_wait();
    const float* const total = group_sums + pending / kGroup % 2 * kGroup * kOut;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      int tile, row, column;
      if (!place_of(i, tile, row, column)) continue;
      const auto sum_of = [&](int at) {
        const float* const place = total + tile * kOut + row * kTile + at;
        return load_of_cluster(place, 0) + load_of_cluster(place, 1);
      };
      int64_t at = first + pending + tile;
      float sum = sum_of(column);
      if (work.end == SmallRowsEnd::kSiluMul) {
        if (column >= 8) continue;
        const float gate = rounded<T>(sum), up = rounded<T>(sum_of(column + 8));
        sum = gate / (1.0f + expf(-gate)) * up;
        at = at * 8 + column;
      } else {
        at = at * kTile + column;
        if (at >= work.n) continue;
      }
      at += row * work.ldy;
      if (work.y_type == DType::kF32) {
        static_cast<float*>(work.y)[at] = sum + before[i];
      } else {
        static_cast<T*>(work.y)[at] = from_float<T>(sum);
      }
    }
    pending = -1;
  };

  uint32_t read_slot = 0, copy_slot = (kStages - 1) * kStageBytes;
  for (int group = 0; group < count; group += kGroup) {
    const int in_group = min(kGroup, count - group);
    for (int slice = 0; slice < slices; ++slice) {
      const int run = run_begin + slice * kDepth, pieces = min(kDepth, run_end - run);
      load_x(run);
      for (int tile = 0; tile < in_group; ++tile) {
        float c[2][4] = {};
#pragma unroll
        for (int piece = 0; piece < kDepth; ++piece) {
          if (piece >= pieces) break;
          wait_for_copies<kStages - 2>();
          __syncwarp();
          copy(copy_slot);
          copy_slot = copy_slot + kStageBytes == kStages * kStageBytes ? 0 : copy_slot + kStageBytes;
          uint4 low[2], high[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const uint32_t address = (read_from + read_slot) ^ static_cast<uint32_t>(i * 64);
            low[i] = load_shared(address), high[i] = load_shared(address + kStageBytes / 2);
          }
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            multiply(T{}, c[i], {low[i].x, high[i].x, low[i].y, high[i].y}, x[piece][i].x, x[piece][i].y);
          }
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            multiply(T{}, c[i], {low[i].z, high[i].z, low[i].w, high[i].w}, x[piece][i].z, x[piece][i].w);
          }
          read_slot = read_slot + kStageBytes == kStages * kStageBytes ? 0 : read_slot + kStageBytes;
        }
        if (pending >= 0) finish_group();
        if (phase > 0) {
          add_warps();
          if (ends) end_group(last_group);
        }
        float* const own = sums + (phase % 2 * kWarps + warp) * kSumFloats;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          own[(t * 2 + i % 2) * kSumStride + g + i / 2 * 8] = c[0][i] + c[1][i];
        }
        __syncwarp();
        if (lane == 0) arrive(&full[phase % 2]);
        ++phase;
        last_tile = tile, last_group = group;
        fresh = slice == 0, ends = slice + 1 == slices && tile + 1 == in_group;
      }
    }
  }
  if (pending >= 0) finish_group();
  add_warps();
  end_group(last_group);
  finish_group();
  // The other one may still read here.
  cluster_arrive();
  cluster_wait();
}

template <class T>
void run_kernel(const Work& work, int processors, Stream& stream) {
  const auto kernel = small_rows_kernel<T>;
  allow_shared_memory(kernel, kSharedBytes);
  const int teams = std::min(work.tiles, std::max(1, processors * kBlocksPerSm / kRanks));
  launch_overlapping(stream, kernel, dim3(static_cast<unsigned>(teams * kRanks)), dim3(kThreads), kRanks, kSharedBytes,
                     work);
}

}  // namespace

void small_rows_on_clusters(const SmallRowsProduct& p, int processors, Stream& stream) {
  const bool pairs = p.end == SmallRowsEnd::kSiluMul;
  const Work work{p.x,
                  p.w,
                  p.y,
                  p.ldx,
                  p.ldy,
                  (pairs ? p.n / 2 : 8) * p.k,
                  static_cast<int>(p.m),
                  static_cast<int>(p.n),
                  static_cast<int>(p.k),
                  static_cast<int>((p.n + kTile - 1) / kTile),
                  pairs ? 8 : kTile,
                  p.y_type,
                  p.end};
  if (p.type == DType::kF16) return run_kernel<F16>(work, processors, stream);
  run_kernel<BF16>(work, processors, stream);
}

}  // namespace quire::gpu
