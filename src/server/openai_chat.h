#pragma once
// The JSON of /v1/chat/completions.
#include "server/answer.h"

namespace quire {

class ChatAnswer : public AnswerFormat {
 public:
  using AnswerFormat::AnswerFormat;
  std::string whole(const std::vector<PromptState>& prompts) const override;
  void open(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view usage) const override;
  void delta(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view text,
             std::string_view usage) const override;
  void usage_chunk(std::string& out, std::string_view usage) const override;

 private:
  std::string head(std::string_view object) const;
  // {"content":[{"token","logprob","bytes","top_logprobs"}]} of ids[from..).
  std::string logprobs_json(const ChoiceState& choice, size_t from) const;
};

}  // namespace quire
