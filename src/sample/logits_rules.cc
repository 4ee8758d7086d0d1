#include "sample/logits_rules.h"

#include <algorithm>
#include <limits>

namespace quire {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void keep_only(std::span<float> logits, std::span<const int32_t> allowed, std::vector<float>& kept) {
  kept.clear();
  for (const int32_t id : allowed) kept.push_back(logits[static_cast<size_t>(id)]);
  std::fill(logits.begin(), logits.end(), kMinusInfinity);
  for (size_t i = 0; i < allowed.size(); ++i) logits[static_cast<size_t>(allowed[i])] = kept[i];
}

// A bad word's last token is masked where the output ends with the tokens before it.
void mask_bad_words(std::span<float> logits, const std::vector<std::vector<int32_t>>& words,
                    std::span<const int32_t> output) {
  for (const std::vector<int32_t>& word : words) {
    const size_t before = word.size() - 1;
    if (before > output.size()) continue;
    if (std::equal(word.begin(), word.end() - 1, output.end() - static_cast<std::ptrdiff_t>(before))) {
      logits[static_cast<size_t>(word.back())] = kMinusInfinity;
    }
  }
}

// Once for each token that occurs. marks: all zero, before and after.
void penalize_repetition(std::span<float> logits, float penalty, std::initializer_list<std::span<const int32_t>> texts,
                         std::span<int32_t> marks) {
  for (const std::span<const int32_t> text : texts) {
    for (const int32_t id : text) {
      if (marks[static_cast<size_t>(id)]++ != 0) continue;
      float& logit = logits[static_cast<size_t>(id)];
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  for (const std::span<const int32_t> text : texts) {
    for (const int32_t id : text) marks[static_cast<size_t>(id)] = 0;
  }
}

void penalize_output(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> output,
                     std::span<int32_t> marks) {
  for (const int32_t id : output) ++marks[static_cast<size_t>(id)];
  for (const int32_t id : output) {
    int32_t& count = marks[static_cast<size_t>(id)];
    if (count == 0) continue;
    logits[static_cast<size_t>(id)] -= static_cast<float>(params.frequency_penalty * count + params.presence_penalty);
    count = 0;
  }
}

}  // namespace

void apply_rules(std::span<float> logits, const SampleInput& input, SamplerScratch& scratch) {
  const SamplingParams& params = *input.params;
  if (!params.allowed_token_ids.empty()) keep_only(logits, params.allowed_token_ids, scratch.values);
  if (!params.bad_words.empty()) mask_bad_words(logits, params.bad_words, input.output_ids);
  if (static_cast<int64_t>(input.output_ids.size()) < params.min_tokens) {
    for (const int32_t id : input.stop_ids) logits[static_cast<size_t>(id)] = kMinusInfinity;
  }
  for (const auto& [id, bias] : params.logit_bias) logits[static_cast<size_t>(id)] += bias;

  const bool repetition = params.repetition_penalty != 1.0;
  const bool output_only = params.frequency_penalty != 0.0 || params.presence_penalty != 0.0;
  if (!repetition && !output_only) return;
  if (scratch.marks.size() < logits.size()) scratch.marks.resize(logits.size());
  if (repetition) {
    penalize_repetition(logits, static_cast<float>(params.repetition_penalty), {input.prompt_ids, input.output_ids},
                        scratch.marks);
  }
  if (output_only) penalize_output(logits, params, input.output_ids, scratch.marks);
}

}  // namespace quire
