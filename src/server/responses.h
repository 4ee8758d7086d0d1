#pragma once
// POST /v1/responses: OpenAI's Responses API, text in and text out. Nothing is stored: `store` has no effect, and a
// request that builds on an earlier response is refused.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer.h"
#include "server/app.h"

namespace quire {

struct Api;

struct ResponsesFields : ChatFields {
  // Fields of the answer that repeat the request: ,"instructions":..,"metadata":..
  std::string echo;
};

class ResponsesAnswer : public AnswerFormat {
 public:
  ResponsesAnswer(AnswerContext context, std::string echo);
  std::string whole(const std::vector<PromptState>& prompts) const override;
  void begin(std::string& out, const std::vector<PromptState>& prompts) override;
  void open(std::string& /*out*/, const PromptState&, ChoiceState&, std::string_view /*usage*/) override {}
  void delta(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view text,
             std::string_view usage) override;
  void end(std::string& out, const std::vector<PromptState>& prompts) override;
  void failure_event(std::string& out, const Error& error) override;

 private:
  // Appends event `type` with its number and `fields` (,"delta":..).
  void event(std::string& out, std::string_view type, std::string_view fields);
  std::string response(std::string_view status, std::string_view output, std::string_view usage,
                       std::string_view error = "null") const;
  std::string finished(const std::vector<PromptState>& prompts) const;
  std::string part(const ChoiceState& choice) const;
  std::string item(std::string_view status, std::string_view content) const;
  std::string logprobs(const ChoiceState& choice, size_t from) const;

  std::string echo_, item_id_, place_;
  int64_t number_ = 0;
};

ResponsesFields read_responses_fields(const nlohmann::ordered_json& body, const GenerationConfig& defaults,
                                      const ServerConfig& config);

void append_responses_routes(Api& api, std::vector<Route>& routes);

}  // namespace quire
