#include "kernels/linear/gpu/small_rows.h"

#include <algorithm>
#include <cmath>

#include "gpu/matrix.h"
#include "gpu/vector.h"

// Products of few rows by any vendor's matrix instructions. A block has 16 rows of w, the lines of the left operand,
// and the rows of x are those of the right one. Its waves take pieces of k in turn, each straight from memory to
// registers: the weights are used once, and x is small enough for the cache next to the wave. In the end the waves'
// sums are added in their order.
namespace quire::gpu {
namespace {

constexpr int kWaves = 4, kThreads = kWaves * kWave, kTile = 16;
constexpr int kPiece = 64;  // of k: 128 bytes of a row
constexpr int kPacks = kPiece / 32;
constexpr int kAhead = 2;  // pieces that a wave has under way
constexpr int kSumStride = kTile + 4;

struct Work {
  const void *x, *w;
  void* y;
  int64_t ldx, ldy, upper;  // upper: elements of w from a tile's row 0 to its row 8
  int m, n, k, tile_rows;
  DType y_type;
  SmallRowsEnd end;
};

template <class T>
__device__ inline float rounded(float value) {
  return to_float(from_float<T>(value));
}

// A wave's part of a piece of both operands: of each line its group's 8 elements of every 32.
struct Piece {
  uint4 w[kLines][kPacks], x[kLines][kPacks];
};

template <class T>
__global__ void __launch_bounds__(kThreads) small_rows_kernel(const Work work) {
  __shared__ float sums[kWaves][kTile][kSumStride];  // [row of x][row of w]
  let_next_kernel_start();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWave, wave = thread / kWave;
  const auto tile = static_cast<int>(blockIdx.x);
  const bool pairs = work.end == SmallRowsEnd::kSiluMul;
  const auto column_of = [&](int pack) { return pack * 32 + group_of(lane) * 8; };

  const T* w_rows[kLines];
  const T* x_rows[kLines];
  bool w_there[kLines], x_there[kLines];
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    const int line = line_of(lane, i);
    w_there[i] = pairs || tile * kTile + line < work.n;
    const int64_t row = static_cast<int64_t>(tile) * work.tile_rows + line % 8;
    w_rows[i] = static_cast<const T*>(work.w) + (w_there[i] ? row * work.k + line / 8 * work.upper : 0);
    x_there[i] = line < work.m;
    x_rows[i] = static_cast<const T*>(work.x) + (x_there[i] ? line * work.ldx : 0);
  }
  const auto load_of = [&](const T* row, bool there, int at) {
    if (!there || at >= work.k) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(row + at);
  };
  const auto load_w = [&](Piece& piece, int k) {
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) piece.w[i][p] = load_of(w_rows[i], w_there[i], k + column_of(p));
    }
  };
  const auto load_x = [&](Piece& piece, int k) {
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) piece.x[i][p] = load_of(x_rows[i], x_there[i], k + column_of(p));
    }
  };

  constexpr int kStep = kWaves * kPiece;
  int k = wave * kPiece;
  Piece pieces[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load_w(pieces[i], k + i * kStep);
  wait_for_previous_kernel();
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load_x(pieces[i], k + i * kStep);
  MatrixTile c = {};
  for (; k < work.k; k += kAhead * kStep) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        MatrixOperand left[2], right[2];
#pragma unroll
        for (int n = 0; n < kLines; ++n) {
          set_line(left, n, pieces[i].w[n][p]);
          set_line(right, n, pieces[i].x[n][p]);
        }
        multiply(T{}, c, left[0], right[0]);
        multiply(T{}, c, left[1], right[1]);
      }
      load_w(pieces[i], k + (i + kAhead) * kStep);
      load_x(pieces[i], k + (i + kAhead) * kStep);
    }
  }

#pragma unroll
  for (int n = 0; n < kLines; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[wave][line_of(lane, n)][depth_of(group_of(lane), e)] = c[n][e];
  }
  __syncthreads();
  for (int i = thread; i < work.m * kTile; i += kThreads) {
    const int row = i / kTile, column = i % kTile;
    const auto sum_of = [&](int at) {
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kWaves; ++n) sum += sums[n][row][at];
      return sum;
    };
    float sum = sum_of(column);
    int64_t at = static_cast<int64_t>(tile) * work.tile_rows + column;
    if (pairs) {
      if (column >= 8) continue;
      const float gate = rounded<T>(sum), up = rounded<T>(sum_of(column + 8));
      sum = gate / (1.0f + expf(-gate)) * up;
    } else if (at >= work.n) {
      continue;
    }
    at += row * work.ldy;
    if (work.y_type == DType::kF32) {
      auto* const y = static_cast<float*>(work.y);
      y[at] = work.end == SmallRowsEnd::kAdd ? y[at] + sum : sum;
    } else {
      static_cast<T*>(work.y)[at] = from_float<T>(sum);
    }
  }
}

}  // namespace

int64_t small_rows_most() {
#if defined(__HIP_PLATFORM_AMD__)
  return kSmallRowsAnywhere;
#else
  return kSmallRowsOnClusters;
#endif
}

bool small_rows_fits(const SmallRowsProduct& p) {
  constexpr int64_t kMost = 1 << 24;
  return p.m >= 1 && p.m <= small_rows_most() && (p.type == DType::kF16 || p.type == DType::kBF16) &&
         (p.end == SmallRowsEnd::kAdd ? p.y_type == DType::kF32 : p.y_type == DType::kF32 || p.y_type == p.type) &&
         (p.end != SmallRowsEnd::kSiluMul || p.n % 16 == 0) && p.k % 8 == 0 && p.k >= 8 && p.k <= kMost && p.n >= 1 &&
         p.n <= kMost && p.ldx % 8 == 0 && is_aligned_16(p.x) && is_aligned_16(p.w);
}

void small_rows_anywhere(const SmallRowsProduct& p, Stream& stream) {
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
                  pairs ? 8 : kTile,
                  p.y_type,
                  p.end};
  const auto run = [&](auto kernel) {
    launch_overlapping(stream, kernel, dim3(ceil_blocks(p.n, kTile)), dim3(kThreads), 1, 0, work);
  };
  if (p.type == DType::kF16) return run(small_rows_kernel<F16>);
  run(small_rows_kernel<BF16>);
}

void small_rows(const SmallRowsProduct& product, [[maybe_unused]] int processors, Stream& stream) {
#if !defined(__HIP_PLATFORM_AMD__)
  if (can_cluster()) return small_rows_on_clusters(product, processors, stream);
#endif
  small_rows_anywhere(product, stream);
}

}  // namespace quire::gpu
