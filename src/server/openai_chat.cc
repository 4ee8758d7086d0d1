#include "server/openai_chat.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "server/api.h"
#include "server/json_body.h"
#include "server/json_errors.h"

namespace quire {

namespace {

std::string logprobs_json(const ChoiceState& choice, size_t from, const AnswerContext& context) {
  return "{\"content\":" + token_logprobs_json(choice, from, context) + "}";
}

}  // namespace

std::string ChatAnswer::whole(const std::vector<PromptState>& prompts) const {
  const GenerationFields& fields = context().fields;
  const PromptState& prompt = prompts.front();
  std::string out = head("chat.completion");
  bool first = true;
  for (const ChoiceState& choice : prompt.choices) {
    fmt::format_to(std::back_inserter(out), R"({}{{"index":{},"message":{{"role":{},"content":)",
                   std::exchange(first, false) ? "" : ",", choice.index, json_string(context().role));
    append_json_string(out, context().echo + choice.detokenizer.text());
    out +=
        R"(,"refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning":null},"logprobs":)";
    out += fields.logprobs ? logprobs_json(choice, 0, context()) : "null";
    fmt::format_to(std::back_inserter(out), R"(,"finish_reason":{},"stop_reason":{},"token_ids":{}}})",
                   finish_json(choice.finish), stop_reason_json(choice),
                   fields.return_token_ids ? ids_json(choice.ids) : "null");
  }
  fmt::format_to(
      std::back_inserter(out),
      R"(],"service_tier":null,"system_fingerprint":{},"usage":{},"prompt_logprobs":{},"prompt_token_ids":{},)",
      fingerprint_json(), usage_json(prompts, context()), prompt_logprobs_json(prompt, context()),
      fields.return_token_ids ? ids_json(prompt.ids) : "null");
  fmt::format_to(std::back_inserter(out), R"("prompt_text":{},"kv_transfer_params":null}})",
                 fields.return_prompt_text ? json_string(prompt.text) : "null");
  return out;
}

void ChatAnswer::open(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view usage) {
  const GenerationFields& fields = context().fields;
  begin_chunk(out);
  fmt::format_to(std::back_inserter(out),
                 R"({{"index":{},"delta":{{"role":{},"content":""}},"logprobs":null,"finish_reason":null}})",
                 choice.index, json_string(context().role));
  std::string more;
  if (fields.return_token_ids) more += ",\"prompt_token_ids\":" + ids_json(prompt.ids);
  if (fields.return_prompt_text) more += ",\"prompt_text\":" + json_string(prompt.text);
  more += usage;
  end_chunk(out, more, false);
  if (context().echo.empty()) return;
  begin_chunk(out);
  fmt::format_to(std::back_inserter(out),
                 R"({{"index":{},"delta":{{"content":{}}},"logprobs":null,"finish_reason":null}})", choice.index,
                 json_string(context().echo));
  end_chunk(out, usage, false);
}

void ChatAnswer::delta(std::string& out, const PromptState&, ChoiceState& choice, std::string_view text,
                       std::string_view usage) {
  const GenerationFields& fields = context().fields;
  const bool last = choice.finish != FinishReason::kNone;
  begin_chunk(out);
  fmt::format_to(std::back_inserter(out), R"({{"index":{},"delta":{{"content":)", choice.index);
  append_json_string(out, text);
  out += "},\"logprobs\":";
  out += fields.logprobs ? logprobs_json(choice, choice.sent_ids, context()) : "null";
  out += ",\"finish_reason\":";
  out += finish_json(choice.finish);
  if (last) out += ",\"stop_reason\":" + stop_reason_json(choice);
  if (fields.return_token_ids) out += ",\"token_ids\":" + ids_json(choice.ids, choice.sent_ids);
  out += '}';
  end_chunk(out, usage, last && !fields.include_usage);
}

void handle_chat(Api& api, const std::shared_ptr<HttpExchange>& exchange) {
  ChatFields fields = [&] {
    const std::string body = take_json_body(*exchange);
    const JsonPointer json = keep_json(parse_json_object(body));
    return read_chat_fields(*json, api.engine.generation_config(), api.config);
  }();
  api.check_model(fields.model);
  std::vector<GenerationSession::Prompt> prompts(1);
  prompts[0] = api.render_conversation(fields);

  const nlohmann::ordered_json& last = fields.messages->back();
  std::string role = fields.add_generation_prompt ? api.config.response_role : last["role"].get<std::string>();
  std::string echo;
  if (fields.echo && last["role"] == role && last["content"].is_string()) echo = last["content"].get<std::string>();
  AnswerContext context = api.make_context(exchange->request(), std::move(fields), "chatcmpl-");
  context.role = std::move(role);
  context.echo = std::move(echo);
  api.run(exchange, std::make_unique<ChatAnswer>(std::move(context)), std::move(prompts));
}

}  // namespace quire
