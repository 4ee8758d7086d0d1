#pragma once
// The JSON of /v1/completions.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/answer.h"

namespace quire {

class CompletionAnswer : public ChunkedAnswer {
 public:
  explicit CompletionAnswer(AnswerContext context) : ChunkedAnswer(std::move(context), kObject) {}
  std::string whole(const std::vector<PromptState>& prompts) const override;
  void open(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view usage) override;
  void delta(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view text,
             std::string_view usage) override;

 private:
  static constexpr std::string_view kObject = "text_completion";
  // {"text_offset","token_logprobs","tokens","top_logprobs"} of the prompt (with_prompt) and of ids[from..).
  // characters: how many the tokens before have; moved on.
  std::string logprobs_json(const PromptState& prompt, const ChoiceState& choice, bool with_prompt, size_t from,
                            size_t& characters) const;
};

}  // namespace quire
