#pragma once
// What a request's parameters do to its logits before a token is chosen.
#include <span>

#include "sample/sampler.h"

namespace quire {

// In vLLM's order: allowed ids, bad words, min_tokens, logit bias, then repetition, frequency and presence penalty. Ids
// of the input are below logits.size() (engine/admission has checked them). The work is in proportion to the tokens
// that a rule names.
void apply_rules(std::span<float> logits, const SampleInput& input, SamplerScratch& scratch);

}  // namespace quire
