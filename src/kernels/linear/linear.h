#pragma once
// y = x W^T (+ y): the matrix product of every linear layer. x [m, in] f32, W [out, in] packed, y [m, out] f32.
//
// Packed weights are panels of 16 output rows laid out for the instruction set in use:
//   kF32, kBF16  every element, converted; f32 accumulation. kBF16 on AMX: x counts to 2^-18 of its values
//   kInt8        4- or 8-bit codes with a scale (and a minimum) for each row and group of 32 or 16 columns: w = scale *
//   code + min.
//                x is quantized to int8 for each row and group of 32; a group's products are summed in int32.
// Order of arithmetic: groups (or single columns) in ascending order into one f32 accumulator for each (row of x, row
// of W) by fused multiply-add, for any m, thread count and instruction set (but AMX, which has an order of its own, for
// any m and thread count): a row of y does not depend on the other rows of x. With `accumulate` the finished sum is
// added to y.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/dtype.h"
#include "tensor/workspace.h"

namespace quire {

enum class LinearCompute : uint8_t { kF32, kBF16, kInt8 };

// The rows of x of a product [m, in]: as they are in memory, or made of others while they are packed for it, which
// saves a pass over memory.
struct LinearInput {
  enum class Form : uint8_t {
    kRows,     // x [m, in], ldx floats apart
    kRmsNorm,  // rms_norm() of those rows
    kSiluMul,  // silu_mul() of rows of gate and up [2 * in], ldx apart
  };
  const float* x = nullptr;
  int64_t ldx = 0;
  Form form = Form::kRows;
  const float* norm_weight = nullptr;  // [in], of kRmsNorm
  float norm_eps = 0;
};

// Which arithmetic a weight of this file type gets: float32 = everything dequantized to f32.
// kInt8 for block-quantized sources unless f32 or bf16 is forced.
class PackedLinear {
 public:
  // Reads `count` source rows from `row` (contiguous, of dtype `source`). Called from several threads.
  using RowSource = std::function<const std::byte*(int64_t row, int64_t count, std::vector<std::byte>& scratch)>;

  // out, in >= 1; in must be a whole number of the source's blocks. Throws Error(kInvalidArgument) if not.
  static PackedLinear pack(int64_t out, int64_t in, DType source, const RowSource& rows, LinearCompute compute,
                           ThreadPool& pool);
  // Several weights with the same input stacked into one product (q, k, v; gate, up). Parts may differ in source dtype.
  struct Part {
    int64_t out;
    DType source;
    RowSource rows;
  };
  static PackedLinear pack_stacked(const std::vector<Part>& parts, int64_t in, LinearCompute compute, ThreadPool& pool);

  PackedLinear();
  PackedLinear(PackedLinear&&) noexcept;
  PackedLinear& operator=(PackedLinear&&) noexcept;
  ~PackedLinear();

  int64_t out() const;
  int64_t in() const;
  size_t bytes() const;  // resident bytes of the packed weight
  LinearCompute compute() const;

  // Scratch that forward() takes from the workspace for m rows, which so many workers make.
  size_t workspace_bytes(int64_t m, int workers) const;
  // y[i*ldy + o] = (accumulate ? y : 0) + sum_k x[i, k] W[o, k]. y may not be the memory of x.
  void forward(const LinearInput& x, float* y, int64_t ldy, int64_t m, bool accumulate, Workspace& workspace,
               ThreadPool& pool) const;
  // One row of W back as floats (the embedding of a tied head): dst [in].
  void dequantize_row(int64_t row, float* dst) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
