#pragma once
// POST /v1/messages and /v1/messages/count_tokens: Anthropic's shape of a conversation, text only.
#include <string>
#include <string_view>
#include <vector>

#include "server/answer.h"
#include "server/app.h"

namespace quire {

struct Api;

class MessagesAnswer : public AnswerFormat {
 public:
  using AnswerFormat::AnswerFormat;
  std::string whole(const std::vector<PromptState>& prompts) const override;
  HttpResponse failure(const Error& error) const override;
  void begin(std::string& out, const std::vector<PromptState>& prompts) override;
  void open(std::string& /*out*/, const PromptState&, ChoiceState&, std::string_view /*usage*/) override {}
  void delta(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view text,
             std::string_view usage) override;
  void end(std::string& out, const std::vector<PromptState>& prompts) override;
  void failure_event(std::string& out, const Error& error) override;

 private:
  // {"id",..,"stop_sequence": `stop`, "usage":{..}}
  std::string message(std::string_view content, std::string_view stop_reason, std::string_view stop_sequence,
                      const std::vector<PromptState>& prompts) const;
};

// The chat request that a body of this shape stands for. counting: of /count_tokens, which has no fields of sampling.
ChatFields read_messages_fields(const nlohmann::ordered_json& body, const GenerationConfig& defaults,
                                const ServerConfig& config, bool counting);

void append_messages_routes(Api& api, std::vector<Route>& routes);

}  // namespace quire
