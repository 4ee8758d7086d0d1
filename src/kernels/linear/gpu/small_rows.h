#pragma once
// Products of few rows with a weight matrix that is read once: the linear layers of a decode step, bound by memory.
#include <cstddef>
#include <cstdint>

#include "gpu/stream.h"
#include "tensor/dtype.h"

namespace quire::gpu {

// What becomes of a finished sum of f32.
enum class SmallRowsEnd : uint8_t {
  kStore,    // y[m, n] = sum, of y_type
  kAdd,      // y[m, n] += sum, of kF32
  kSiluMul,  // y[m, n / 2] = silu(first half of the columns) * second half, each rounded to `type` before
};

struct SmallRowsProduct {
  const void* x;  // [m, k] of `type`, rows ldx elements apart
  int64_t ldx;
  const void* w;  // [n, k] of `type`
  void* y;        // rows ldy elements apart
  int64_t ldy;
  int64_t m, n, k;
  DType type, y_type;  // kF16 or kBF16; y_type: the same or kF32
  SmallRowsEnd end = SmallRowsEnd::kStore;
};

// Most rows of x that small_rows_anywhere() and small_rows_on_clusters() take.
constexpr int64_t kSmallRowsAnywhere = 16, kSmallRowsOnClusters = 8;
// Most rows that small_rows() takes: the same on every card of a vendor.
int64_t small_rows_most();

// Whether small_rows() takes the product; false: gpu::Blas does.
bool small_rows_fits(const SmallRowsProduct& product);

// Weights are read before the kernel that precedes on the stream is done: it must not be the one that writes them. The
// next kernel may start early if it is launched to overlap (gpu/runtime.h). The sum of an output is the same whatever
// the other rows are. processors: multiprocessors of the device.
void small_rows(const SmallRowsProduct& product, int processors, Stream& stream);

// The two ways of doing it, to the same contract: by any vendor's matrix instructions, and by clusters of blocks where
// can_cluster(), which small_rows() takes if it can.
void small_rows_anywhere(const SmallRowsProduct& product, Stream& stream);
void small_rows_on_clusters(const SmallRowsProduct& product, int processors, Stream& stream);

}  // namespace quire::gpu
