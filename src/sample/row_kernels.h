#pragma once
// Passes over one row of logits, one build for each instruction set. The source is the same for all and has no fused
// multiply-add, and sums have a fixed order, so the results are the same to the last bit.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/cpu_isa.h"
#include "sample/gumbel.h"

namespace quire {

// kMaximaStride neighbouring elements share kMaximaLanes maxima: element i counts for the one of lane i % kMaximaLanes.
constexpr size_t kMaximaStride = 1024, kMaximaLanes = 16;
constexpr size_t maxima_of(size_t n) { return (n + kMaximaStride - 1) / kMaximaStride * kMaximaLanes; }

using Candidate = std::pair<float, int32_t>;  // logit, id

struct RowMaximum {
  float value = -std::numeric_limits<float>::infinity();  // NaN counts for nothing
  bool has_nan = false;
};

struct RowKernels {
  // The largest element, and in `maxima` [maxima_of(n)] those of disjoint parts of the row (-inf: an empty part), so
  // that the k-th largest of them is no larger than the k-th of the row.
  RowMaximum (*maximum)(const float* row, size_t n, float* maxima);
  size_t (*index_of)(const float* row, size_t n, float value);     // the first; n if there is none
  size_t (*count_above)(const float* row, size_t n, float value);  // strictly
  void (*scale)(float* row, size_t n, float shift, float factor);  // x = (x - shift) * factor
  // Sum of exp(x - shift) over the elements >= floor; NaN counts for nothing. No x - shift is above 0. Relative error
  // below 1e-6.
  double (*sum_exp)(const float* row, size_t n, float shift, float floor);
  // Writes the elements >= floor with their indices, in their order, to `out` [n]; NaN and -inf are never among them.
  // Returns how many.
  size_t (*collect)(const float* row, size_t n, float floor, Candidate* out);
  // Offers every element that may still win.
  void (*race)(const float* row, size_t n, GumbelRace& race);
};

const RowKernels& row_kernels(CpuIsa isa);

extern const RowKernels kRowKernelsScalar, kRowKernelsAvx2, kRowKernelsAvx512;

}  // namespace quire
