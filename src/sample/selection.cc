#include "sample/selection.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace quire {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

double mass_of(std::span<const Candidate> candidates) {
  double mass = 0;
  for (const Candidate& candidate : candidates) mass += static_cast<double>(std::exp(candidate.first));
  return mass;
}

// The last candidate of the smallest head, best first, whose mass reaches `wanted`. Halves the rest each time, so the
// work is linear.
Candidate last_of_mass(std::span<Candidate> rest, double wanted) {
  while (rest.size() > 1) {
    const size_t half = rest.size() / 2;
    std::nth_element(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(half), rest.end(), better);
    const double mass = mass_of(rest.first(half));
    if (mass >= wanted) {
      rest = rest.first(half);
    } else {
      wanted -= mass;
      rest = rest.subspan(half);
    }
  }
  return rest[0];
}

}  // namespace

float kth_bound(std::span<const float> maxima, size_t k, std::vector<float>& scratch) {
  if (k > maxima.size()) return kMinusInfinity;
  scratch.assign(maxima.begin(), maxima.end());
  const auto kth = scratch.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(scratch.begin(), kth, scratch.end(), std::greater<>());
  return *kth;
}

Cut select_cut(const RowKernels& kernels, std::span<const float> row, std::span<const float> maxima,
               const SelectionLimits& limits, std::vector<float>& scratch, std::vector<Candidate>& candidates) {
  const bool by_count = limits.top_k > 0 && limits.top_k < row.size(), by_mass = limits.top_p < 1.0;
  Cut cut;
  cut.logit = std::max(cut.logit, limits.floor);
  if (!by_count && !by_mass) return cut;

  float bound = limits.floor;
  double mass = 0;
  if (by_count) {
    bound = std::max(bound, kth_bound(maxima, limits.top_k, scratch));
  } else {
    mass = kernels.sum_exp(row.data(), row.size(), 0.0f, limits.floor);
    // The logits below this one weigh less together than what top_p leaves out, so none of them is in.
    const double left_out = (1.0 - limits.top_p) * mass / static_cast<double>(row.size());
    bound = std::max(bound, static_cast<float>(std::log(left_out)) - 0.01f);
  }
  candidates.resize(std::max(candidates.size(), row.size()));  // grows once for each vocabulary
  std::span<Candidate> rest(candidates.data(), kernels.collect(row.data(), row.size(), bound, candidates.data()));
  if (by_count && limits.top_k < rest.size()) {
    std::nth_element(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(limits.top_k), rest.end(), better);
    rest = rest.first(limits.top_k);
  }
  Candidate last;
  if (by_mass) {
    if (by_count) mass = mass_of(rest);
    constexpr double kRounding = 1e-6;
    last = last_of_mass(rest, limits.top_p * mass * (1.0 - kRounding));
  } else {
    last = *std::max_element(rest.begin(), rest.end(), better);
  }
  cut.logit = last.first;
  cut.last_id = last.second;
  return cut;
}

}  // namespace quire
