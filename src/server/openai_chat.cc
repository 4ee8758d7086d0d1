#include "server/openai_chat.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "server/api.h"
#include "server/json_body.h"
#include "server/json_errors.h"

namespace quire {

std::string ChatAnswer::head(std::string_view object) const {
  return fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"choices":[)", json_string(context().id),
                     object, context().created, json_string(context().model));
}

std::string ChatAnswer::logprobs_json(const ChoiceState& choice, size_t from) const {
  std::string out = "{\"content\":[";
  const auto entry = [&](const TokenLogprobs::Entry& e) {
    out += "{\"token\":";
    append_json_string(out, token_text(e.id, context()));
    out += ",\"logprob\":";
    append_logprob(out, e.logprob);
    out += ",\"bytes\":[";  // the raw ones, also of a token that is a piece of a character
    bool first = true;
    for (const char c : context().tokenizer->token_bytes(e.id)) {
      fmt::format_to(std::back_inserter(out), "{}{}", std::exchange(first, false) ? "" : ",",
                     static_cast<unsigned char>(c));
    }
    out += ']';
  };
  for (size_t i = from; i < choice.logprobs.size(); ++i) {
    const TokenLogprobs& position = choice.logprobs[i];
    if (i > from) out += ',';
    entry(position.token);
    out += ",\"top_logprobs\":[";
    for (size_t k = 0; k < position.top.size(); ++k) {
      if (k > 0) out += ',';
      entry(position.top[k]);
      out += '}';
    }
    out += "]}";
  }
  out += "]}";
  return out;
}

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
    out += fields.logprobs ? logprobs_json(choice, 0) : "null";
    fmt::format_to(std::back_inserter(out), R"(,"finish_reason":{},"stop_reason":{},"token_ids":{}}})",
                   finish_json(choice.finish), stop_reason_json(choice),
                   fields.return_token_ids ? ids_json(choice.ids) : "null");
  }
  fmt::format_to(
      std::back_inserter(out),
      R"(],"service_tier":null,"system_fingerprint":null,"usage":{},"prompt_logprobs":{},"prompt_token_ids":{},)",
      usage_json(prompts, context()), prompt_logprobs_json(prompt, context()),
      fields.return_token_ids ? ids_json(prompt.ids) : "null");
  out += R"("kv_transfer_params":null})";
  return out;
}

void ChatAnswer::open(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view usage) const {
  std::string json = head("chat.completion.chunk");
  fmt::format_to(std::back_inserter(json),
                 R"({{"index":{},"delta":{{"role":{},"content":""}},"logprobs":null,"finish_reason":null}}])",
                 choice.index, json_string(context().role));
  if (context().fields.return_token_ids) json += ",\"prompt_token_ids\":" + ids_json(prompt.ids);
  json += usage;
  json += '}';
  append_event(out, json);
  if (context().echo.empty()) return;
  json = head("chat.completion.chunk");
  fmt::format_to(std::back_inserter(json),
                 R"({{"index":{},"delta":{{"content":{}}},"logprobs":null,"finish_reason":null}}]{}}})", choice.index,
                 json_string(context().echo), usage);
  append_event(out, json);
}

void ChatAnswer::delta(std::string& out, const PromptState&, ChoiceState& choice, std::string_view text,
                       std::string_view usage) const {
  const GenerationFields& fields = context().fields;
  std::string json = head("chat.completion.chunk");
  fmt::format_to(std::back_inserter(json), R"({{"index":{},"delta":{{"content":)", choice.index);
  append_json_string(json, text);
  json += "},\"logprobs\":";
  json += fields.logprobs ? logprobs_json(choice, choice.sent_ids) : "null";
  fmt::format_to(std::back_inserter(json), R"(,"finish_reason":{})", finish_json(choice.finish));
  if (choice.finish != FinishReason::kNone) json += ",\"stop_reason\":" + stop_reason_json(choice);
  if (fields.return_token_ids) json += ",\"token_ids\":" + ids_json(choice.ids, choice.sent_ids);
  json += "}]";
  json += usage;
  json += '}';
  append_event(out, json);
}

void ChatAnswer::usage_chunk(std::string& out, std::string_view usage) const {
  append_event(out, head("chat.completion.chunk") + "]" + std::string(usage) + "}");
}

void handle_chat(Api& api, const std::shared_ptr<HttpExchange>& exchange) {
  ChatFields fields = [&] {
    const std::string body = take_json_body(*exchange);
    return read_chat_fields(parse_json_object(body), api.engine.generation_config(), api.config);
  }();
  api.check_model(fields.model);
  std::vector<GenerationSession::Prompt> prompts(1);
  prompts[0].ids = api.encode_conversation(fields);
  api.truncate(prompts[0].ids, fields);

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
