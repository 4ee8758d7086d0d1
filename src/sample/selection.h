#pragma once
// What min_p, top_k and top_p leave of a row.
#include <span>
#include <vector>

#include "sample/row_kernels.h"

namespace quire {

// Larger logit first, then lower id. No NaN.
inline bool better(const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

struct SelectionLimits {
  float floor;   // logits below are out (min_p)
  size_t top_k;  // 0 = all
  double top_p;  // >= 1: all
};

// row: logits whose largest is 0; maxima: of RowKernels::maximum over them. `candidates` is scratch. top_k: ties at the
// last place go to lower ids. top_p: the smallest head of the sorted rest whose share reaches top_p, within 1e-6.
Cut select_cut(const RowKernels& kernels, std::span<const float> row, std::span<const float> maxima,
               const SelectionLimits& limits, std::vector<float>& scratch, std::vector<Candidate>& candidates);

// A value that at least k elements of the row reach and not many more do; -inf where the maxima can't tell.
float kth_bound(std::span<const float> maxima, size_t k, std::vector<float>& scratch);

}  // namespace quire
