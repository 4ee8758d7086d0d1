#pragma once
// The JSON of /v1/completions.
#include "server/answer.h"

namespace quire {

class CompletionAnswer : public AnswerFormat {
 public:
  using AnswerFormat::AnswerFormat;
  std::string whole(const std::vector<PromptState>& prompts) const override;
  void open(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view usage) const override;
  void delta(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view text,
             std::string_view usage) const override;
  void usage_chunk(std::string& out, std::string_view usage) const override;

 private:
  std::string head() const;
  // {"text_offset","token_logprobs","tokens","top_logprobs"} of the prompt (with_prompt) and of ids[from..).
  // characters: how many the tokens before have; moved on.
  std::string logprobs_json(const PromptState& prompt, const ChoiceState& choice, bool with_prompt, size_t from,
                            size_t& characters) const;
};

}  // namespace quire
