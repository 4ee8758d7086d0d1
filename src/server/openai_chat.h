#pragma once
// The JSON of /v1/chat/completions.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/answer.h"

namespace quire {

class ChatAnswer : public ChunkedAnswer {
 public:
  explicit ChatAnswer(AnswerContext context) : ChunkedAnswer(std::move(context), "chat.completion.chunk") {}
  std::string whole(const std::vector<PromptState>& prompts) const override;
  void open(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view usage) override;
  void delta(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view text,
             std::string_view usage) override;
};

}  // namespace quire
