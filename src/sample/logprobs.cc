#include <algorithm>
#include <cmath>
#include <limits>

#include "sample/sampler.h"
#include "sample/selection.h"

namespace quire {
namespace {

// The best `count` of a row, best first; in the scratch.
std::span<const Candidate> best_of(const RowKernels& kernels, std::span<const float> logits, size_t count,
                                   SamplerScratch& scratch) {
  const float bound = kth_bound(scratch.maxima, count, scratch.values);
  std::vector<Candidate>& top = scratch.candidates;
  top.resize(std::max(top.size(), logits.size()));  // grows once for each vocabulary
  size_t found = kernels.collect(logits.data(), logits.size(), bound, top.data());
  if (found < count) {  // the rest of a row that is masked in part or holds NaN
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!(logits[i] >= std::numeric_limits<float>::lowest())) {
        top[found++] = {-std::numeric_limits<float>::infinity(), static_cast<int32_t>(i)};
      }
    }
  }
  const auto begin = top.begin(), end = begin + static_cast<std::ptrdiff_t>(found);
  std::partial_sort(begin, begin + static_cast<std::ptrdiff_t>(count), end, better);
  return {top.data(), count};
}

// log_softmax of a row's single entries.
class RowLogprobs {
 public:
  RowLogprobs(std::span<const float> logits, SamplerScratch& scratch)
      : kernels_(row_kernels(cpu_isa())), logits_(logits) {
    scratch.maxima.resize(maxima_of(logits.size()));
    const float best = kernels_.maximum(logits.data(), logits.size(), scratch.maxima.data()).value;
    log_sum_ =
        std::log(kernels_.sum_exp(logits.data(), logits.size(), best, -std::numeric_limits<float>::infinity())) + best;
  }
  const RowKernels& kernels() const { return kernels_; }
  float of_logit(float x) const {
    const double value = static_cast<double>(x) - log_sum_;
    return std::isnan(value) ? -std::numeric_limits<float>::infinity() : static_cast<float>(value);
  }
  TokenLogprobs::Entry of_token(int32_t id) const {
    const float own = logits_[static_cast<size_t>(id)];
    return {id, of_logit(own), static_cast<int32_t>(kernels_.count_above(logits_.data(), logits_.size(), own)) + 1};
  }

 private:
  const RowKernels& kernels_;
  std::span<const float> logits_;
  double log_sum_ = 0;
};

}  // namespace

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int32_t n, SamplerScratch& scratch) {
  const RowLogprobs row(logits, scratch);
  TokenLogprobs result{row.of_token(token), {}};
  const size_t count = n < 0 ? logits.size() : std::min(logits.size(), static_cast<size_t>(n));
  if (count == 0) return result;
  result.top.reserve(count);
  int32_t place = 0;
  for (const auto& [logit, id] : best_of(row.kernels(), logits, count, scratch))
    result.top.push_back({id, row.of_logit(logit), ++place});
  return result;
}

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, std::span<const int32_t> ids,
                             SamplerScratch& scratch) {
  const RowLogprobs row(logits, scratch);
  TokenLogprobs result{row.of_token(token), {}};
  result.top.reserve(ids.size());
  for (const int32_t id : ids) result.top.push_back(row.of_token(id));
  return result;
}

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int32_t n) {
  SamplerScratch scratch;
  return token_logprobs(logits, token, n, scratch);
}

}  // namespace quire
