#include "sample/sampler.h"

#include <cmath>
#include <limits>

#include "sample/logits_rules.h"
#include "sample/philox.h"
#include "sample/selection.h"

namespace quire {
namespace {

// Index of the largest logit, the lowest on ties; -1 if there is a NaN, an infinity or nothing but -inf. Leaves the
// row's maxima.
int32_t argmax(const RowKernels& kernels, std::span<const float> logits, std::vector<float>& maxima) {
  maxima.resize(maxima_of(logits.size()));
  const RowMaximum best = kernels.maximum(logits.data(), logits.size(), maxima.data());
  if (best.has_nan || !std::isfinite(best.value)) return -1;
  return static_cast<int32_t>(kernels.index_of(logits.data(), logits.size(), best.value));
}

// Divides by the temperature around the largest logit, which becomes 0: a tiny temperature can't overflow. Then cuts.
Cut temper_and_cut(const RowKernels& kernels, std::span<float> logits, float best, const SamplingParams& params,
                   SamplerScratch& scratch) {
  const auto factor = static_cast<float>(1.0 / params.temperature);
  kernels.scale(logits.data(), logits.size(), best, factor);
  kernels.scale(scratch.maxima.data(), scratch.maxima.size(), best, factor);
  const SelectionLimits limits{
      params.min_p > 0 ? static_cast<float>(std::log(params.min_p)) : -std::numeric_limits<float>::infinity(),
      params.top_k > 0 ? static_cast<size_t>(params.top_k) : 0, params.top_p};
  return select_cut(kernels, logits, scratch.maxima, limits, scratch.values, scratch.candidates);
}

}  // namespace

double philox_uniform(uint64_t seed, uint32_t choice, uint32_t position, uint32_t index) {
  const auto words =
      philox4x32({index / 4, position, choice, 0}, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return 1.0 - upper_tail(words[index % 4]);
}

SampleResult sample(std::span<float> logits, const SampleInput& input, SamplerScratch& scratch) {
  const RowKernels& kernels = row_kernels(cpu_isa());
  const SamplingParams& params = *input.params;
  SampleResult result;
  const bool want_logprobs = params.logprobs.has_value();
  // Log-probabilities are those of the raw logits: they have to be taken before anything changes them, but only the
  // token is known later.
  if (want_logprobs) scratch.raw.assign(logits.begin(), logits.end());
  apply_rules(logits, input, scratch);
  result.token = argmax(kernels, logits, scratch.maxima);
  if (result.token < 0) return result;
  if (!params.greedy()) {
    const Cut cut = temper_and_cut(kernels, logits, logits[static_cast<size_t>(result.token)], params, scratch);
    GumbelRace race{{input.seed, static_cast<uint32_t>(input.output_ids.size()), input.choice}, cut};
    race.offer(0.0f, result.token);  // a high first bid spares most of the others their noise
    kernels.race(logits.data(), logits.size(), race);
    result.token = race.winner;
  }
  if (!want_logprobs) return result;
  result.logprobs = params.logprob_token_ids.empty()
                        ? token_logprobs(scratch.raw, result.token, *params.logprobs, scratch)
                        : token_logprobs(scratch.raw, result.token, params.logprob_token_ids, scratch);
  return result;
}

std::vector<std::pair<int32_t, double>> candidate_probabilities(std::span<float> logits, const SampleInput& input) {
  const RowKernels& kernels = row_kernels(cpu_isa());
  SamplerScratch scratch;
  apply_rules(logits, input, scratch);
  const int32_t greedy = argmax(kernels, logits, scratch.maxima);
  if (greedy < 0) return {};
  if (input.params->greedy()) return {{greedy, 1.0}};
  const Cut cut = temper_and_cut(kernels, logits, logits[static_cast<size_t>(greedy)], *input.params, scratch);
  std::vector<std::pair<int32_t, double>> result;
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!cut.keeps(logits[i], static_cast<int32_t>(i))) continue;
    result.emplace_back(static_cast<int32_t>(i), std::exp(static_cast<double>(logits[i])));
    total += result.back().second;
  }
  for (auto& [id, probability] : result) probability /= total;
  return result;
}

}  // namespace quire
