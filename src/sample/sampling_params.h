#pragma once
// How one request's tokens are chosen and when it stops. Values are those of vLLM's SamplingParams.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace quire {

struct SamplingParams {
  int32_t n = 1;
  double temperature = 1.0;  // below 1e-5 = greedy
  double top_p = 1.0;
  int64_t top_k = 0;  // 0 and -1 = off
  double min_p = 0.0;
  double presence_penalty = 0.0, frequency_penalty = 0.0, repetition_penalty = 1.0;
  std::optional<int64_t> seed;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> allowed_token_ids;  // empty = all
  std::vector<std::vector<int32_t>> bad_words;

  std::optional<int64_t> max_tokens;  // null = the rest of the context
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;

  std::optional<int32_t> logprobs;         // top N of each generated token; -1 = whole vocabulary
  std::optional<int32_t> prompt_logprobs;  // the same for the prompt
  std::vector<int32_t> logprob_token_ids;  // not empty: logprobs are those of these ids rather than of the top N

  bool greedy() const { return temperature < 1e-5; }
};

// One position's log-probabilities: the token itself and the top N, best first.
struct TokenLogprobs {
  struct Entry {
    int32_t id;
    float logprob;
    int32_t rank;  // 1 = most likely
  };
  Entry token;
  std::vector<Entry> top;
};

}  // namespace quire
