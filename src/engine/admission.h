#pragma once
// The one validator of requests, whatever they come from. Fills in what a request leaves open and refuses what is out
// of range.
#include <cstdint>

#include "engine/generation.h"

namespace quire {

struct AdmissionLimits {
  int64_t max_model_len = 0;
  int64_t kv_tokens = 0;  // what the whole KV pool holds
  int32_t vocab_size = 0;
  int32_t max_logprobs = 20;  // -1 = vocabulary
};

// Throws Error(kInvalidArgument) naming the parameter, the value and the limit; its wording is vLLM's where vLLM has
// one.
void admit_request(GenerateRequest& request, const AdmissionLimits& limits);

}  // namespace quire
