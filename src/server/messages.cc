#include "server/messages.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api.h"
#include "server/json_body.h"
#include "server/json_errors.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kStopEvents =
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n";

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

std::string error_body(const Error& error) {
  return fmt::format(R"({{"type":"error","error":{{"type":"{}","message":{}}}}})", error_type(error_status(error)),
                     json_string(error.what()));
}

HttpResponse error_answer(const Error& error) {
  HttpResponse response = error_response(error);
  response.body = error_body(error);
  return response;
}

std::string_view stop_reason(const ChoiceState& choice) {
  if (choice.stop_string) return "\"stop_sequence\"";
  switch (choice.finish) {
    case FinishReason::kLength:
      return "\"max_tokens\"";
    case FinishReason::kStop:
      return "\"end_turn\"";
    default:
      return "null";
  }
}

std::string stop_sequence(const ChoiceState& choice) {
  return choice.stop_string ? json_string(*choice.stop_string) : "null";
}

std::string usage(const std::vector<PromptState>& prompts, const AnswerContext& context) {
  const PromptState& prompt = prompts.front();
  return fmt::format(
      R"({{"input_tokens":{},"output_tokens":{},"cache_creation_input_tokens":null,"cache_read_input_tokens":{}}})",
      prompt.ids.size(), prompt.choices.front().ids.size(),
      context.prompt_tokens_details ? std::to_string(prompt.generation->cached_tokens()) : "null");
}

// What the model thought in earlier turns is not shown to it again.
void append_turn(Json& messages, const std::string& role, const Json& content) {
  if (!content.is_array()) return append_message(messages, role, content);
  append_message(messages, role, Json::array());
  Json& out = messages.back()["content"];
  for (const Json& block : content) {
    const std::string type = block.is_object() ? FieldReader(block).string("type").value_or("") : "";
    if (type != "thinking" && type != "redacted_thinking") out.push_back(block);
  }
}

void read_turns(const FieldReader& fields, Json& out) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr) throw validation_error("messages: field required", "messages");
  if (!messages->is_array()) throw validation_error("messages: expected a list of objects", "messages");
  if (messages->empty()) throw invalid_argument("messages must not be empty", "messages");
  if (const Json* system = fields.find("system")) {
    if (!system->is_string() && !system->is_array()) {
      throw validation_error("system: expected a string or a list of text blocks", "system");
    }
    if (!system->empty()) append_message(out, "system", *system);
  }
  for (const Json& message : *messages) {
    if (!message.is_object()) throw validation_error("messages: expected a list of objects", "messages");
    const FieldReader reader(message);
    const std::string role = reader.string("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system") {
      throw validation_error("messages.role: expected user, assistant or system", "messages");
    }
    const Json* content = reader.find("content");
    if (content == nullptr) throw validation_error("messages.content: field required", "messages");
    append_turn(out, role, *content);
  }
}

// Into `chat`, as a chat template takes them; nothing if there are none.
void read_tools(const FieldReader& fields, bool counting, Json& chat) {
  const Json* tools = fields.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) throw validation_error("tools: expected a list", "tools");
  if (tools->empty()) return;
  const Json* choice = fields.object("tool_choice");
  const bool none = choice != nullptr && FieldReader(*choice).string("type") == "none";
  if (!none && !counting) throw unsupported("tool calling (tools without tool_choice of type none)", "tools");
  Json& out = chat["tools"] = Json::array();
  for (const Json& tool : *tools) {
    if (!tool.is_object()) throw validation_error("tools: expected a list of objects", "tools");
    const FieldReader reader(tool);
    const auto name = reader.string("name");
    if (!name) throw validation_error("tools.name: field required", "tools");
    append_tool(out, *name, reader.string("description").value_or(""), reader.object("input_schema"));
  }
}

void refuse_what_is_missing(const FieldReader& fields) {
  fields.object("metadata");
  if (const Json* thinking = fields.object("thinking")) {
    const auto type = FieldReader(*thinking).string("type");
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      throw validation_error("thinking.type: expected enabled, disabled or adaptive", "thinking");
    }
    if (type == "enabled") throw unsupported("thinking", "thinking");
  }
  if (const Json* output = fields.object("output_config")) {
    if (FieldReader(*output).find("format") != nullptr) throw unsupported("output_config.format", "output_config");
  }
}

void handle(Api& api, const std::shared_ptr<HttpExchange>& exchange, bool counting) {
  api.refuse_when_draining();
  ChatFields fields = [&] {
    const std::string body = take_json_body(*exchange);
    const JsonPointer json = keep_json(parse_json_object(body));
    return read_messages_fields(*json, api.engine.generation_config(), api.config, counting);
  }();
  api.check_model(fields.model);
  std::vector<GenerationSession::Prompt> prompts;
  prompts.push_back(api.render_conversation(fields, counting));
  if (counting) {
    exchange->respond(json_response(fmt::format(R"({{"input_tokens":{}}})", prompts.front().ids.size())));
    return;
  }
  AnswerContext context = api.make_context(exchange->request(), std::move(fields), "msg_");
  api.run(exchange, std::make_unique<MessagesAnswer>(std::move(context)), std::move(prompts));
}

Route route(Api& api, const char* path, bool counting) {
  return {{"POST"}, path, [&api, counting](const std::shared_ptr<HttpExchange>& exchange) {
            try {
              handle(api, exchange, counting);
            } catch (const Error& error) {
              exchange->respond(error_answer(error));
            }
          }};
}

}  // namespace

ChatFields read_messages_fields(const Json& body, const GenerationConfig& defaults, const ServerConfig& config,
                                bool counting) {
  const FieldReader fields(body);
  ChatFields out;
  if (fields.find("model") == nullptr) throw validation_error("model: field required", "model");
  out.model = fields.string("model").value_or("");
  const JsonPointer kept = keep_json(Json::object());
  Json& chat = *kept;
  Json& messages = chat["messages"] = Json::array();
  read_turns(fields, messages);
  // A last turn of the assistant is the beginning of the answer.
  const bool begun = messages.back()["role"] == "assistant";
  chat["continue_final_message"] = begun;
  read_tools(fields, counting, chat);
  if (const Json* values = fields.object("chat_template_kwargs")) chat["chat_template_kwargs"] = *values;
  if (const Json* output = fields.object("output_config")) {
    if (const auto effort = FieldReader(*output).string("effort")) chat["reasoning_effort"] = *effort;
  }
  read_conversation(chat, config, out);
  refuse_what_is_missing(fields);
  if (counting) return out;

  read_sampling_fields(body, defaults, config, out);
  SamplingParams& params = out.params;
  if (params.n != 1) throw invalid_argument(fmt::format("n must be 1 here, got {}", params.n), "n");
  params.max_tokens = read_max_tokens(fields, "max_tokens");
  if (!params.max_tokens) throw validation_error("max_tokens: field required", "max_tokens");
  params.stop = fields.strings("stop_sequences");
  return out;
}

std::string MessagesAnswer::message(std::string_view content, std::string_view reason, std::string_view sequence,
                                    const std::vector<PromptState>& prompts) const {
  return fmt::format(
      R"({{"id":{},"type":"message","role":"assistant","content":{},"model":{},"stop_reason":{},"stop_sequence":{},"usage":{}}})",
      json_string(context().id), content, json_string(context().model), reason, sequence, usage(prompts, context()));
}

std::string MessagesAnswer::whole(const std::vector<PromptState>& prompts) const {
  const ChoiceState& choice = prompts.front().choices.front();
  return message(fmt::format(R"([{{"type":"text","text":{}}}])", json_string(choice.detokenizer.text())),
                 stop_reason(choice), stop_sequence(choice), prompts);
}

HttpResponse MessagesAnswer::failure(const Error& error) const { return error_answer(error); }

void MessagesAnswer::begin(std::string& out, const std::vector<PromptState>& prompts) {
  append_event(out, "message_start",
               R"({"type":"message_start","message":)" + message("[]", "null", "null", prompts) + "}");
  append_event(out, "content_block_start",
               R"({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}})");
  append_event(out, "ping", R"({"type":"ping"})");
}

void MessagesAnswer::delta(std::string& out, const PromptState& /*prompt*/, ChoiceState& /*choice*/,
                           std::string_view text, std::string_view /*usage*/) {
  if (text.empty()) return;
  out +=
      "event: content_block_delta\ndata: "
      R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":)";
  append_json_string(out, text);
  out += "}}\n\n";
}

void MessagesAnswer::end(std::string& out, const std::vector<PromptState>& prompts) {
  const ChoiceState& choice = prompts.front().choices.front();
  out += kStopEvents;
  append_event(out, "message_delta",
               fmt::format(R"({{"type":"message_delta","delta":{{"stop_reason":{},"stop_sequence":{}}},"usage":{}}})",
                           stop_reason(choice), stop_sequence(choice), usage(prompts, context())));
  append_event(out, "message_stop", R"({"type":"message_stop"})");
}

void MessagesAnswer::failure_event(std::string& out, const Error& error) {
  append_event(out, "error", error_body(error));
}

void append_messages_routes(Api& api, std::vector<Route>& routes) {
  routes.push_back(route(api, "/v1/messages", false));
  routes.push_back(route(api, "/v1/messages/count_tokens", true));
}

}  // namespace quire
