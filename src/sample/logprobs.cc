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

}  // namespace

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int32_t n, SamplerScratch& scratch) {
  const RowKernels& kernels = row_kernels(cpu_isa());
  const size_t vocab = logits.size();
  scratch.maxima.resize(maxima_of(vocab));
  const float best = kernels.maximum(logits.data(), vocab, scratch.maxima.data()).value;
  const double log_sum =
      std::log(kernels.sum_exp(logits.data(), vocab, best, -std::numeric_limits<float>::infinity())) + best;
  const auto logprob = [&](float x) {
    const double value = static_cast<double>(x) - log_sum;
    return std::isnan(value) ? -std::numeric_limits<float>::infinity() : static_cast<float>(value);
  };
  const float own = logits[static_cast<size_t>(token)];
  const auto rank = static_cast<int32_t>(kernels.count_above(logits.data(), vocab, own)) + 1;
  TokenLogprobs result{{token, logprob(own), rank}, {}};
  const size_t count = n < 0 ? vocab : std::min(vocab, static_cast<size_t>(n));
  if (count == 0) return result;
  result.top.reserve(count);
  int32_t place = 0;
  for (const auto& [logit, id] : best_of(kernels, logits, count, scratch))
    result.top.push_back({id, logprob(logit), ++place});
  return result;
}

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int32_t n) {
  SamplerScratch scratch;
  return token_logprobs(logits, token, n, scratch);
}

}  // namespace quire
