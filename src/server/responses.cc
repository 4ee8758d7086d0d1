#include "server/responses.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api.h"
#include "server/json_body.h"
#include "server/json_errors.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxMetadata = 16;

// An item of `input` goes to `messages` as a chat message, unless it has nothing that the model is shown.
void read_item(const Json& item, Json& messages) {
  if (!item.is_object()) throw validation_error("input: expected a list of objects", "input");
  const FieldReader reader(item);
  const std::string type = reader.string("type").value_or("message");
  if (type == "reasoning") return;
  if (type != "message") throw unsupported(fmt::format("input of type {}", type.substr(0, 64)), "input");
  const auto role = reader.string("role");
  if (!role) throw validation_error("input.role: field required", "input");
  if (*role != "user" && *role != "assistant" && *role != "system" && *role != "developer") {
    throw validation_error("input.role: expected user, assistant, system or developer", "input");
  }
  const Json* content = reader.find("content");
  if (content == nullptr) throw validation_error("input.content: field required", "input");
  append_message(messages, *role, *content);
}

void read_input(const FieldReader& fields, Json& messages) {
  if (const auto instructions = fields.string("instructions")) append_message(messages, "system", *instructions);
  const Json* input = fields.find("input");
  if (input == nullptr) throw validation_error("input: field required", "input");
  if (input->is_string()) {
    append_message(messages, "user", *input);
  } else if (input->is_array()) {
    if (input->empty()) throw invalid_argument("input must not be empty", "input");
    for (const Json& item : *input) read_item(item, messages);
  } else {
    throw validation_error("input: expected a string or a list of items", "input");
  }
}

// Into `chat`, as a chat template takes them; nothing if there are none.
void read_tools(const FieldReader& fields, Json& chat) {
  const Json* tools = fields.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) throw validation_error("tools: expected a list", "tools");
  if (tools->empty()) return;
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice != "none")
    throw unsupported("tool calling (tools without tool_choice \"none\")", "tools");
  Json& out = chat["tools"] = Json::array();
  for (const Json& tool : *tools) {
    if (!tool.is_object()) throw validation_error("tools: expected a list of objects", "tools");
    const FieldReader reader(tool);
    const auto name = reader.string("name");
    if (reader.string("type").value_or("function") != "function" || !name) {
      throw unsupported("a tool that is not a named function", "tools");
    }
    append_tool(out, *name, reader.string("description").value_or(""), reader.object("parameters"));
  }
}

void refuse_what_is_missing(const FieldReader& fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"}) {
    if (fields.find(name) != nullptr) {
      throw invalid_argument(
          fmt::format("{} is not supported: no response is stored. Send the conversation in `input`.", name), name);
    }
  }
  if (fields.boolean("background").value_or(false)) throw unsupported("background", "background");
  fields.boolean("store");
  if (const Json* text = fields.object("text")) {
    if (const Json* format = FieldReader(*text).object("format")) {
      const std::string type = FieldReader(*format).string("type").value_or("");
      if (type.empty()) throw validation_error("text.format.type: field required", "text");
      if (type != "text") throw unsupported(fmt::format("text.format of type {}", type.substr(0, 64)), "text");
    }
  }
}

void read_logprobs(const FieldReader& fields, ResponsesFields& out) {
  const std::vector<std::string> include = fields.strings("include");
  out.logprobs = std::ranges::find(include, "message.output_text.logprobs") != include.end();
  const int32_t top = fields.small_integer("top_logprobs").value_or(0);
  if (top < 0) throw invalid_argument(fmt::format("top_logprobs must be non-negative, got {}", top), "top_logprobs");
  if (out.logprobs) out.params.logprobs = top;
}

std::string metadata_json(const FieldReader& fields) {
  const Json* metadata = fields.object("metadata");
  if (metadata == nullptr) return "{}";
  if (metadata->size() > kMaxMetadata) {
    throw invalid_argument(fmt::format("metadata may have at most {} entries, got {}", kMaxMetadata, metadata->size()),
                           "metadata");
  }
  for (const Json& value : *metadata) {
    if (!value.is_string()) throw validation_error("metadata: expected strings as values", "metadata");
  }
  return metadata->dump();
}

std::string echo_json(const FieldReader& fields, const ResponsesFields& read) {
  const SamplingParams& params = read.params;
  const auto text = [&](const char* name) {
    const auto value = fields.string(name);
    return value ? json_string(*value) : std::string("null");
  };
  std::string out = fmt::format(
      R"(,"instructions":{},"metadata":{},"temperature":{},"top_p":{},"max_output_tokens":{},"top_logprobs":{})",
      text("instructions"), metadata_json(fields), params.temperature, params.top_p,
      params.max_tokens ? std::to_string(*params.max_tokens) : "null", params.logprobs.value_or(0));
  fmt::format_to(
      std::back_inserter(out),
      R"(,"truncation":"{}","user":{},"parallel_tool_calls":{},"tool_choice":"{}","tools":[],"text":{{"format":{{"type":"text"}}}})",
      read.truncate_prompt_tokens ? "auto" : "disabled", text("user"),
      fields.boolean("parallel_tool_calls").value_or(true), read.tools != nullptr ? "none" : "auto");
  out += R"(,"background":false,"store":false,"previous_response_id":null,"reasoning":null,"service_tier":null)";
  return out;
}

std::string usage_of(const std::vector<PromptState>& prompts) {
  const PromptState& prompt = prompts.front();
  const size_t input = prompt.ids.size(), output = prompt.choices.front().ids.size();
  return fmt::format(
      R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},"output_tokens":{},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}})",
      input, prompt.generation->cached_tokens(), output, input + output);
}

std::string_view status_of(const ChoiceState& choice) {
  return choice.finish == FinishReason::kLength ? "incomplete" : "completed";
}

void handle_responses(Api& api, const std::shared_ptr<HttpExchange>& exchange) {
  api.refuse_when_draining();
  ResponsesFields fields = [&] {
    const std::string body = take_json_body(*exchange);
    const JsonPointer json = keep_json(parse_json_object(body));
    return read_responses_fields(*json, api.engine.generation_config(), api.config);
  }();
  api.check_model(fields.model);
  std::vector<GenerationSession::Prompt> prompts;
  prompts.push_back(api.render_conversation(fields));
  std::string echo = std::move(fields.echo);
  AnswerContext context = api.make_context(exchange->request(), std::move(fields), "resp_");
  api.run(exchange, std::make_unique<ResponsesAnswer>(std::move(context), std::move(echo)), std::move(prompts));
}

}  // namespace

ResponsesFields read_responses_fields(const Json& body, const GenerationConfig& defaults, const ServerConfig& config) {
  const FieldReader fields(body);
  ResponsesFields out;
  refuse_what_is_missing(fields);
  const JsonPointer kept = keep_json(Json::object());
  Json& chat = *kept;
  read_input(fields, chat["messages"] = Json::array());
  read_tools(fields, chat);
  if (const Json* values = fields.object("chat_template_kwargs")) chat["chat_template_kwargs"] = *values;
  if (const Json* reasoning = fields.object("reasoning")) {
    if (const auto effort = FieldReader(*reasoning).string("effort")) chat["reasoning_effort"] = *effort;
  }
  read_conversation(chat, config, out);

  read_sampling_fields(body, defaults, config, out);
  SamplingParams& params = out.params;
  if (params.n != 1) throw invalid_argument(fmt::format("n must be 1 here, got {}", params.n), "n");
  params.max_tokens = read_max_tokens(fields, "max_output_tokens");
  if (!params.max_tokens) params.max_tokens = defaults.max_new_tokens;
  params.stop = fields.strings("stop");
  read_logprobs(fields, out);
  if (const auto truncation = fields.string("truncation")) {
    if (*truncation != "auto" && *truncation != "disabled")
      throw validation_error("truncation: expected auto or disabled", "truncation");
    if (*truncation == "auto") out.truncate_prompt_tokens = -1;
  }
  out.echo = echo_json(fields, out);
  return out;
}

ResponsesAnswer::ResponsesAnswer(AnswerContext context, std::string echo)
    : AnswerFormat(std::move(context)),
      echo_(std::move(echo)),
      item_id_(json_string("msg_" + random_hex())),
      place_(fmt::format(R"(,"item_id":{},"output_index":0,"content_index":0)", item_id_)) {}

std::string ResponsesAnswer::logprobs(const ChoiceState& choice, size_t from) const {
  return context().fields.logprobs ? token_logprobs_json(choice, from, context()) : "[]";
}

std::string ResponsesAnswer::part(const ChoiceState& choice) const {
  return fmt::format(R"({{"type":"output_text","text":{},"annotations":[],"logprobs":{}}})",
                     json_string(choice.detokenizer.text()), logprobs(choice, 0));
}

std::string ResponsesAnswer::item(std::string_view status, std::string_view content) const {
  return fmt::format(R"({{"id":{},"type":"message","status":"{}","role":"assistant","content":[{}]}})", item_id_,
                     status, content);
}

std::string ResponsesAnswer::response(std::string_view status, std::string_view output, std::string_view usage,
                                      std::string_view error) const {
  return fmt::format(
      R"({{"id":{},"object":"response","created_at":{},"status":"{}","error":{},"incomplete_details":{},"model":{},"output":[{}],"usage":{}{}}})",
      json_string(context().id), context().created, status, error,
      status == "incomplete" ? R"({"reason":"max_output_tokens"})" : "null", json_string(context().model), output,
      usage, echo_);
}

std::string ResponsesAnswer::finished(const std::vector<PromptState>& prompts) const {
  const ChoiceState& choice = prompts.front().choices.front();
  return response(status_of(choice), item(status_of(choice), part(choice)), usage_of(prompts));
}

std::string ResponsesAnswer::whole(const std::vector<PromptState>& prompts) const { return finished(prompts); }

void ResponsesAnswer::event(std::string& out, std::string_view type, std::string_view fields) {
  fmt::format_to(std::back_inserter(out), "event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1}{2}}}\n\n", type,
                 number_++, fields);
}

void ResponsesAnswer::begin(std::string& out, const std::vector<PromptState>& /*prompts*/) {
  const std::string begun = ",\"response\":" + response("in_progress", "", "null");
  event(out, "response.created", begun);
  event(out, "response.in_progress", begun);
  event(out, "response.output_item.added", ",\"output_index\":0,\"item\":" + item("in_progress", ""));
  event(out, "response.content_part.added",
        place_ + R"(,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]})");
}

void ResponsesAnswer::delta(std::string& out, const PromptState& /*prompt*/, ChoiceState& choice, std::string_view text,
                            std::string_view /*usage*/) {
  if (text.empty() && !context().fields.logprobs) return;
  std::string fields = place_ + ",\"delta\":";
  append_json_string(fields, text);
  fields += ",\"logprobs\":" + logprobs(choice, choice.sent_ids);
  event(out, "response.output_text.delta", fields);
}

void ResponsesAnswer::end(std::string& out, const std::vector<PromptState>& prompts) {
  const ChoiceState& choice = prompts.front().choices.front();
  const std::string content = part(choice);
  event(out, "response.output_text.done",
        place_ + ",\"text\":" + json_string(choice.detokenizer.text()) + ",\"logprobs\":" + logprobs(choice, 0));
  event(out, "response.content_part.done", place_ + ",\"part\":" + content);
  event(out, "response.output_item.done", ",\"output_index\":0,\"item\":" + item(status_of(choice), content));
  event(out, "response.completed", ",\"response\":" + finished(prompts));
}

void ResponsesAnswer::failure_event(std::string& out, const Error& error) {
  const std::string reason = fmt::format(R"({{"code":"server_error","message":{}}})", json_string(error.what()));
  event(out, "response.failed", ",\"response\":" + response("failed", "", "null", reason));
}

void append_responses_routes(Api& api, std::vector<Route>& routes) {
  routes.push_back({{"POST"}, "/v1/responses", [&api](const std::shared_ptr<HttpExchange>& exchange) {
                      handle_responses(api, exchange);
                    }});
}

}  // namespace quire
