#pragma once
// From one row of logits to one token, in vLLM's order: raw log-probabilities, allowed ids, bad words, min_tokens mask,
// logit bias, repetition, frequency and presence penalty, then argmax, or temperature, min_p, top_k, top_p and
// Gumbel-max.
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sample/sampling_params.h"

namespace quire {

struct SampleInput {
  const SamplingParams* params = nullptr;
  std::span<const int32_t> prompt_ids, output_ids;
  std::span<const int32_t> stop_ids;  // EOS and stop_token_ids, masked until min_tokens
  uint64_t seed = 0;                  // the request's, or hash(--seed, request number)
  uint32_t choice = 0;                // index among n
  uint32_t pending = 0;               // further tokens of the output that are not known yet; for sampling on the GPU
};

struct SampleResult {
  int32_t token = -1;  // -1: no finite logit (all masked, or NaN): this request ends with an error
  std::optional<TokenLogprobs> logprobs;
};

// logits [vocab], overwritten. Deterministic in its inputs; the draw for output position output_ids.size() comes from
// Philox4x32-10 keyed by (seed, choice, position). scratch is reused between calls.
struct SamplerScratch {
  std::vector<std::pair<float, int32_t>> candidates;
  std::vector<float> maxima, values;
  std::vector<float> raw;      // logits before processing, where log-probabilities are wanted
  std::vector<int32_t> marks;  // one for each token, all zero between calls
};
SampleResult sample(std::span<float> logits, const SampleInput& input, SamplerScratch& scratch);

// log_softmax of raw logits: the entry of `token` (rank by strictly larger logits + 1) and the top n (n = -1: all),
// ties to the lower id. A NaN counts as -inf.
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int32_t n, SamplerScratch& scratch);
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int32_t n);
// The same of chosen ids, in their order, in place of the top ones.
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, std::span<const int32_t> ids,
                             SamplerScratch& scratch);

// Uniform in (0, 1), of Philox4x32-10 (Salmon et al., SC 2011): counter (vocab index / 4, position, choice, 0), key
// seed.
double philox_uniform(uint64_t seed, uint32_t choice, uint32_t position, uint32_t index);

// For tests and tools: which ids are left and with which probability after the whole pipeline (same arguments as
// sample()).
std::vector<std::pair<int32_t, double>> candidate_probabilities(std::span<float> logits, const SampleInput& input);

}  // namespace quire
