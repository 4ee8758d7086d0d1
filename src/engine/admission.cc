#include "engine/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace quire {
namespace {

constexpr int32_t kMaxChoices = 128;
constexpr size_t kMaxStopStrings = 4, kMaxBadWords = 128, kMaxLogprobIds = 128;
constexpr float kMaxBias = 100.0f;
constexpr double kMinRepetition = 1e-30, kMaxRepetition = 1e30;

template <class T>
[[noreturn]] void refuse(const char* param, const std::string& rule, T value) {
  throw invalid_argument(
      fmt::format("{} must be {}, got {}. (parameter={}, value={})", param, rule, value, param, value), param);
}

void check_range(const char* param, double value, double low, double high, const char* rule) {
  if (!(value >= low && value <= high)) refuse(param, rule, value);
}

void check_token(const char* param, int64_t id, int32_t vocab_size) {
  if (id < 0 || id >= vocab_size) {
    throw invalid_argument(fmt::format("{} contains token id {}, which is out of vocabulary: ids go from 0 to {}",
                                       param, id, vocab_size - 1),
                           param);
  }
}

void check_logprobs(const char* param, const std::optional<int32_t>& value, const AdmissionLimits& limits) {
  if (!value) return;
  const int32_t limit = limits.max_logprobs < 0 ? limits.vocab_size : limits.max_logprobs;
  if (*value < -1) refuse(param, "non-negative or -1", *value);
  const int32_t wanted = *value == -1 ? limits.vocab_size : *value;
  if (wanted > limit) {
    throw invalid_argument(
        fmt::format("Requested {} of {}, which is greater than max allowed: {}", param, wanted, limit), param);
  }
}

void check_sampling(SamplingParams& params, const AdmissionLimits& limits) {
  if (params.n < 1 || params.n > kMaxChoices) refuse("n", fmt::format("between 1 and {}", kMaxChoices), params.n);
  check_range("temperature", params.temperature, 0, 2, "in [0, 2]");
  check_range("top_p", params.top_p, 0, 1, "in (0, 1]");
  if (params.top_p == 0) refuse("top_p", "in (0, 1]", params.top_p);
  if (params.top_k < -1) refuse("top_k", "0 (disable), -1 (disable) or at least 1", params.top_k);
  check_range("min_p", params.min_p, 0, 1, "in [0, 1]");
  check_range("presence_penalty", params.presence_penalty, -2, 2, "in [-2, 2]");
  check_range("frequency_penalty", params.frequency_penalty, -2, 2, "in [-2, 2]");
  // Logits are divided by it in single precision, and stay finite.
  if (!(params.repetition_penalty >= kMinRepetition && params.repetition_penalty <= kMaxRepetition)) {
    refuse("repetition_penalty", fmt::format("greater than zero, from {} to {}", kMinRepetition, kMaxRepetition),
           params.repetition_penalty);
  }
  if (params.n > 1 && params.greedy()) refuse("n", "1 when using greedy sampling", params.n);
  for (auto& [id, bias] : params.logit_bias) {
    check_token("logit_bias", id, limits.vocab_size);
    if (std::isnan(bias)) refuse("logit_bias", "a number", bias);
    bias = std::clamp(bias, -kMaxBias, kMaxBias);
  }
  for (const int32_t id : params.allowed_token_ids) check_token("allowed_token_ids", id, limits.vocab_size);
  if (params.bad_words.size() > kMaxBadWords)
    refuse("bad_words", fmt::format("at most {} long", kMaxBadWords), params.bad_words.size());
  for (const auto& word : params.bad_words) {
    if (word.empty()) throw invalid_argument("bad_words cannot contain an empty string.", "bad_words");
    for (const int32_t id : word) check_token("bad_words", id, limits.vocab_size);
  }
  if (params.stop.size() > kMaxStopStrings)
    refuse("stop", fmt::format("at most {} long", kMaxStopStrings), params.stop.size());
  for (const std::string& stop : params.stop) {
    if (stop.empty()) throw invalid_argument("stop cannot contain an empty string.", "stop");
  }
  for (const int32_t id : params.stop_token_ids) check_token("stop_token_ids", id, limits.vocab_size);
  if (params.logprob_token_ids.size() > kMaxLogprobIds) {
    refuse("logprob_token_ids", fmt::format("at most {} long", kMaxLogprobIds), params.logprob_token_ids.size());
  }
  for (const int32_t id : params.logprob_token_ids) check_token("logprob_token_ids", id, limits.vocab_size);
  if (params.logprob_token_ids.empty()) check_logprobs("logprobs", params.logprobs, limits);
  check_logprobs("prompt_logprobs", params.prompt_logprobs, limits);
}

}  // namespace

void admit_request(GenerateRequest& request, const AdmissionLimits& limits) {
  SamplingParams& params = request.params;
  if (request.pooling != Pooling::kNone) {
    params = {};
    params.max_tokens = 0;
  }
  check_sampling(params, limits);

  const auto prompt = static_cast<int64_t>(request.prompt_ids.size());
  if (prompt == 0) throw invalid_argument("The prompt is empty: at least one token is needed.", "prompt");
  for (const int32_t id : request.prompt_ids) check_token("prompt", id, limits.vocab_size);
  if (params.max_tokens && *params.max_tokens < 0) refuse("max_tokens", "non-negative", *params.max_tokens);
  if (params.max_tokens && *params.max_tokens > limits.max_model_len) {
    throw invalid_argument(fmt::format("max_tokens is too large: {}. This model's maximum context length is {} tokens. "
                                       "(parameter=max_tokens, value={})",
                                       *params.max_tokens, limits.max_model_len, *params.max_tokens),
                           "max_tokens");
  }
  // A prompt that only has its log-probabilities read (max_tokens 0) may fill the context.
  const bool scores_only = params.max_tokens == 0;
  const int64_t room = limits.max_model_len - prompt;
  if (room < (scores_only ? 0 : 1)) {
    throw invalid_argument(
        fmt::format("This model's maximum context length is {} tokens. However, your prompt "
                    "contains {} input tokens{}. Please reduce the length of the prompt.",
                    limits.max_model_len, prompt, scores_only ? "" : ", which leaves no room for output"),
        "prompt");
  }
  params.max_tokens = std::min(params.max_tokens.value_or(room), room);
  if (params.min_tokens < 0) refuse("min_tokens", "non-negative", params.min_tokens);
  if (params.min_tokens > *params.max_tokens) {
    throw invalid_argument(fmt::format("min_tokens must be less than or equal to max_tokens={}, got {}.",
                                       *params.max_tokens, params.min_tokens),
                           "min_tokens");
  }
  if (prompt + *params.max_tokens > limits.kv_tokens) {
    throw invalid_argument(
        fmt::format("the prompt's {} tokens and max_tokens {} need more than the KV cache's {} tokens; raise "
                    "--kv-cache-memory-bytes or lower max_tokens",
                    prompt, *params.max_tokens, limits.kv_tokens),
        "max_tokens");
  }
}

}  // namespace quire
