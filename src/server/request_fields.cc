#include "server/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "server/json_body.h"
#include "server/json_errors.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxPrompts = 1024;
constexpr size_t kMaxSalt = 128;
constexpr size_t kMaxRequestId = 128;

std::vector<std::pair<int32_t, float>> read_logit_bias(const FieldReader& fields) {
  std::vector<std::pair<int32_t, float>> out;
  const Json* object = fields.object("logit_bias");
  if (object == nullptr) return out;
  for (const auto& [key, value] : object->items()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error == std::errc::result_out_of_range) {
      throw invalid_argument(
          fmt::format("logit_bias contains token id {}, which is out of vocabulary", key.substr(0, 32)), "logit_bias");
    }
    if (error != std::errc() || end != key.data() + key.size()) {
      throw validation_error(fmt::format("logit_bias: expected token ids as keys, got \"{}\"", key.substr(0, 32)),
                             "logit_bias");
    }
    if (!value.is_number()) throw validation_error("logit_bias: expected numbers as values", "logit_bias");
    out.emplace_back(id, value.get<float>());
  }
  return out;
}

void read_stream_options(const FieldReader& fields, const ServerConfig& config, GenerationFields& out) {
  if (const Json* object = fields.object("stream_options")) {
    if (!out.stream) throw invalid_argument("Stream options can only be defined when `stream=True`.", "stream_options");
    const FieldReader options(*object);
    out.include_usage = options.boolean("include_usage").value_or(false);
    out.continuous_usage_stats = options.boolean("continuous_usage_stats").value_or(false) && out.include_usage;
  }
  if (config.enable_force_include_usage && out.stream) out.include_usage = out.continuous_usage_stats = true;
}

void read_format_fields(const FieldReader& fields) {
  if (const Json* format = fields.object("response_format")) {
    const FieldReader reader(*format);
    const std::string type = reader.string("type").value_or("");
    if (type.empty()) throw validation_error("response_format.type: field required", "response_format");
    if (type != "text" && type != "json_object" && type != "json_schema" && type != "structural_tag") {
      throw validation_error("response_format.type: expected text, json_object, json_schema or structural_tag",
                             "response_format");
    }
    if (type == "json_schema" && reader.object("json_schema") == nullptr) {
      throw invalid_argument("When response_format type is 'json_schema', the 'json_schema' field must be provided.",
                             "response_format");
    }
    if (type != "text") throw unsupported(fmt::format("response_format of type {}", type), "response_format");
  }
  if (fields.find("structured_outputs") != nullptr) throw unsupported("structured_outputs", "structured_outputs");
}

// What /v1/completions and /v1/chat/completions share beside sampling.
void read_answer_fields(const Json& body, const ServerConfig& config, GenerationFields& out) {
  const FieldReader fields(body);
  read_stream_options(fields, config, out);
  read_format_fields(fields);
  SamplingParams& params = out.params;
  params.stop = fields.strings("stop");
  params.prompt_logprobs = fields.small_integer("prompt_logprobs");
  out.return_prompt_logprobs = params.prompt_logprobs.has_value();
  if (params.prompt_logprobs && out.stream) {
    throw invalid_argument("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs");
  }
  out.echo = fields.boolean("echo").value_or(false);
  out.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  out.return_tokens_as_token_ids =
      fields.boolean("return_tokens_as_token_ids").value_or(config.return_tokens_as_token_ids);
  out.truncate_prompt_tokens = fields.integer("truncate_prompt_tokens");
  if (out.truncate_prompt_tokens && (*out.truncate_prompt_tokens < -1 || *out.truncate_prompt_tokens == 0)) {
    throw invalid_argument(
        fmt::format("truncate_prompt_tokens must be -1 or at least 1, got {}", *out.truncate_prompt_tokens),
        "truncate_prompt_tokens");
  }
  if (const auto side = fields.string("truncation_side")) {
    if (*side != "left" && *side != "right")
      throw validation_error("truncation_side: expected left or right", "truncation_side");
    out.truncate_from_left = *side == "left";
  }
}

// logprob_token_ids say which log-probabilities are wanted, and by themselves that some are.
void read_logprob_ids(const Json& body, GenerationFields& out) {
  SamplingParams& params = out.params;
  params.logprob_token_ids = FieldReader(body).integers("logprob_token_ids");
  if (params.logprob_token_ids.empty()) return;
  const auto count = static_cast<int32_t>(params.logprob_token_ids.size());
  // Chat's plain `logprobs: true` asks for 0 further ones.
  if (params.logprobs.value_or(0) != 0 && params.logprobs != count) {
    throw invalid_argument(
        fmt::format("logprobs must equal the length of logprob_token_ids where both are set, got {} and {}",
                    *params.logprobs, count),
        "logprob_token_ids");
  }
  params.logprobs = count;
  out.logprobs = true;
}

// Content in parts: text only, as templates take it.
Json read_parts(const Json& parts) {
  Json out = Json::array();
  for (const Json& part : parts) {
    std::string piece;
    if (part.is_string()) {
      piece = part.get<std::string>();
    } else if (part.is_object()) {
      const FieldReader reader(part);
      const std::string type = reader.string("type").value_or("text");
      if (type == "refusal") {
        piece = reader.string("refusal").value_or("");
      } else if (type == "text" || type == "input_text" || type == "output_text") {
        const auto found = reader.string("text");
        if (!found) throw validation_error("messages: a text part needs `text`", "messages");
        piece = *found;
      } else {
        throw invalid_argument(fmt::format("messages: content of type {} is not supported by this model, only text is",
                                           type.substr(0, 64)),
                               "messages");
      }
    } else {
      throw validation_error("messages: expected content parts to be objects", "messages");
    }
    out.push_back({{"type", "text"}, {"text", std::move(piece)}});
  }
  return out;
}

// Arguments of past tool calls come as JSON text; templates walk them as objects.
Json read_tool_calls(const Json& calls) {
  if (!calls.is_array()) throw validation_error("messages: expected tool_calls to be a list", "messages");
  Json out = Json::array();
  for (const Json& call : calls) {
    if (!call.is_object()) throw validation_error("messages: expected tool_calls to be objects", "messages");
    Json copy = call;
    if (const auto function = copy.find("function"); function != copy.end() && function->is_object()) {
      const auto arguments = function->find("arguments");
      if (arguments != function->end() && arguments->is_string()) {
        const std::string text = arguments->get<std::string>();
        *arguments = text.empty() ? Json::object() : parse_json_object(text);
      }
    }
    out.push_back(std::move(copy));
  }
  return out;
}

Json read_message(const Json& message) {
  static constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
  if (!message.is_object()) throw validation_error("messages: expected a list of objects", "messages");
  const FieldReader reader(message);
  const auto role = reader.string("role");
  if (!role) throw validation_error("messages.role: field required", "messages");
  bool known = false;
  for (const std::string_view name : kRoles) known = known || name == *role;
  if (!known) {
    throw invalid_argument(
        fmt::format("messages: unknown role \"{}\"; roles are system, developer, user, assistant and tool",
                    role->substr(0, 64)),
        "messages");
  }
  Json out = Json::object();
  out["role"] = *role;
  const Json* content = reader.find("content");
  const Json* calls = reader.find("tool_calls");
  if (content == nullptr) {
    if (*role != "assistant") throw validation_error("messages.content: field required", "messages");
    out["content"] = calls != nullptr ? Json() : Json("");
  } else if (content->is_string()) {
    out["content"] = *content;
  } else if (content->is_array()) {
    out["content"] = read_parts(*content);
  } else {
    throw validation_error("messages.content: expected a string or a list of parts", "messages");
  }
  for (const char* name : {"name", "tool_call_id"}) {
    if (const auto value = reader.string(name)) out[name] = *value;
  }
  for (const char* name : {"reasoning", "reasoning_content"}) {
    if (const auto value = reader.string(name); value && !out.contains("reasoning")) {
      out["reasoning"] = *value;
      out["reasoning_content"] = *value;
    }
  }
  if (calls != nullptr && !calls->empty()) out["tool_calls"] = read_tool_calls(*calls);
  return out;
}

void read_tools(const FieldReader& fields, ChatFields& out) {
  const Json* tools = fields.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) throw validation_error("tools: expected a list", "tools");
  if (tools->empty()) throw invalid_argument("`tools` must not be an empty list.", "tools");
  for (const Json& tool : *tools) {
    if (!tool.is_object()) throw validation_error("tools: expected a list of objects", "tools");
  }
  out.tools = std::make_unique<Json>(*tools);
}

// Tools may be shown to the model; calls are not parsed out of its answers.
void check_tool_choice(const FieldReader& fields, const ChatFields& chat) {
  const Json* choice = fields.find("tool_choice");
  if (choice != nullptr && !choice->is_string() && !choice->is_object()) {
    throw validation_error("tool_choice: expected none, auto, required or an object", "tool_choice");
  }
  const std::string name = choice != nullptr && choice->is_string() ? choice->get<std::string>() : "";
  if (choice != nullptr && choice->is_string() && name != "none" && name != "auto" && name != "required") {
    throw validation_error("tool_choice: expected none, auto, required or an object", "tool_choice");
  }
  if (chat.tools == nullptr) {
    if (choice != nullptr && name != "none" && name != "auto") {
      throw invalid_argument("When using `tool_choice`, `tools` must be set.", "tool_choice");
    }
    return;
  }
  if (name != "none") throw unsupported("tool calling (tools without tool_choice \"none\")", "tools");
}

// The template gets it under this name.
void read_reasoning_effort(const FieldReader& fields, ChatFields& out) {
  static constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  const auto effort = fields.string("reasoning_effort");
  if (!effort) return;
  if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts)) {
    throw validation_error("reasoning_effort: expected none, minimal, low, medium, high, xhigh or max",
                           "reasoning_effort");
  }
  (*out.template_values)["reasoning_effort"] = *effort;
}

}  // namespace

ChatFields::ChatFields() = default;
ChatFields::~ChatFields() = default;
ChatFields::ChatFields(ChatFields&&) noexcept = default;
ChatFields& ChatFields::operator=(ChatFields&&) noexcept = default;

void read_sampling_fields(const Json& body, const GenerationConfig& defaults, const ServerConfig& config,
                          GenerationFields& out) {
  const FieldReader fields(body);
  out.model = fields.string("model").value_or("");
  out.stream = fields.boolean("stream").value_or(false);

  SamplingParams& params = out.params;
  params.n = fields.small_integer("n").value_or(1);
  // Checked here as well as in the engine: nothing is copied n times before.
  if (params.n < 1 || params.n > config.max_sequences) {
    throw invalid_argument(fmt::format("n must be between 1 and {}, got {}. (parameter=n, value={})",
                                       config.max_sequences, params.n, params.n),
                           "n");
  }
  const auto number = [&](const char* name, const std::optional<double>& file, double neutral) {
    return fields.number(name).value_or(file.value_or(neutral));
  };
  params.temperature = number("temperature", defaults.temperature, 1.0);
  params.top_p = number("top_p", defaults.top_p, 1.0);
  params.min_p = number("min_p", defaults.min_p, 0.0);
  params.top_k = fields.integer("top_k").value_or(defaults.top_k.value_or(0));
  params.presence_penalty = number("presence_penalty", defaults.presence_penalty, 0.0);
  params.frequency_penalty = number("frequency_penalty", defaults.frequency_penalty, 0.0);
  params.repetition_penalty = number("repetition_penalty", defaults.repetition_penalty, 1.0);
  params.seed = fields.integer("seed");
  if (params.seed == -1) params.seed.reset();
  params.logit_bias = read_logit_bias(fields);
  params.allowed_token_ids = fields.integers("allowed_token_ids");
  if (const Json* allowed = fields.find("allowed_token_ids"); allowed != nullptr && allowed->empty()) {
    throw invalid_argument("allowed_token_ids is not None and empty!", "allowed_token_ids");
  }
  out.bad_words = fields.strings("bad_words");
  params.min_tokens = fields.integer("min_tokens").value_or(0);
  params.stop_token_ids = fields.integers("stop_token_ids");
  params.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  params.include_stop_str_in_output = fields.boolean("include_stop_str_in_output").value_or(false);
  params.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  fields.boolean("spaces_between_special_tokens");
  out.priority = fields.integer("priority").value_or(0);
  out.request_id = fields.string("request_id").value_or("").substr(0, kMaxRequestId);
  fields.string("user");
  out.cache_salt = read_cache_salt(body);

  if (fields.boolean("use_beam_search").value_or(false)) throw unsupported("use_beam_search", "use_beam_search");
  for (const char* name : {"repetition_detection", "prompt_embeds"}) {
    if (fields.find(name) != nullptr) throw unsupported(name, name);
  }
}

std::optional<int64_t> read_max_tokens(const FieldReader& fields, const char* name, int64_t least) {
  const auto value = fields.integer(name);
  if (value && *value < least) {
    throw invalid_argument(
        fmt::format("{0} must be at least {1}, got {2}. (parameter={0}, value={2})", name, least, *value), name);
  }
  return value;
}

std::vector<CompletionPrompt> read_prompts(const Json& body, const char* field, size_t most) {
  std::vector<CompletionPrompt> prompts;
  const auto wrong_shape = [&] {
    return validation_error(
        fmt::format("{}: expected a string, a list of strings, or (a list of) a list of token ids", field), field);
  };
  const Json* value = FieldReader(body).find(field);
  if (value == nullptr) throw validation_error(fmt::format("{}: field required", field), field);
  const auto add_text = [&](const Json& text) { prompts.push_back({text.get<std::string>(), {}, true}); };
  const auto add_ids = [&](const Json& list) {
    CompletionPrompt prompt;
    prompt.is_text = false;
    prompt.ids.reserve(list.size());
    for (const Json& id : list) prompt.ids.push_back(token_id_of(id, field));
    prompts.push_back(std::move(prompt));
  };
  if (value->is_string()) {
    add_text(*value);
    return prompts;
  }
  if (!value->is_array()) throw wrong_shape();
  if (value->empty()) throw invalid_argument("The prompt is empty: at least one token is needed.", field);
  if (value->front().is_number()) {
    add_ids(*value);
    return prompts;
  }
  if (value->size() > most) {
    throw invalid_argument(fmt::format("{} may have at most {} entries, got {}", field, most, value->size()), field);
  }
  for (const Json& item : *value) {
    if (item.is_string()) {
      add_text(item);
    } else if (item.is_array()) {
      add_ids(item);
    } else {
      throw wrong_shape();
    }
  }
  return prompts;
}

std::string read_cache_salt(const Json& body) {
  const auto salt = FieldReader(body).string("cache_salt");
  if (!salt) return {};
  if (salt->empty() || salt->size() > kMaxSalt ||
      salt->find_first_of(std::string_view("@/\\\0", 4)) != std::string::npos) {
    throw invalid_argument("cache_salt must have 1 to 128 characters and none of @, /, \\ and NUL", "cache_salt");
  }
  return *salt;
}

CompletionFields read_completion_fields(const Json& body, const GenerationConfig& defaults,
                                        const ServerConfig& config) {
  CompletionFields out;
  read_sampling_fields(body, defaults, config, out);
  read_answer_fields(body, config, out);
  const FieldReader fields(body);
  out.prompts = read_prompts(body, "prompt", kMaxPrompts);
  SamplingParams& params = out.params;
  params.max_tokens = read_max_tokens(fields, "max_tokens", out.echo ? 0 : 1);
  if (!params.max_tokens) params.max_tokens = fields.has_null("max_tokens") ? defaults.max_new_tokens : 16;
  params.logprobs = fields.small_integer("logprobs");
  out.logprobs = params.logprobs.has_value();
  if (out.echo && out.logprobs && !params.prompt_logprobs) params.prompt_logprobs = params.logprobs;
  read_logprob_ids(body, out);
  out.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  if (fields.string("suffix").value_or("") != "") throw unsupported("suffix", "suffix");
  return out;
}

void read_conversation(const Json& body, const ServerConfig& config, ChatFields& out) {
  const FieldReader fields(body);
  const Json* messages = fields.find("messages");
  if (messages == nullptr) throw validation_error("messages: field required", "messages");
  if (!messages->is_array()) throw validation_error("messages: expected a list of objects", "messages");
  if (messages->empty()) throw invalid_argument("messages must not be empty", "messages");
  out.messages = std::make_unique<Json>(Json::array());
  for (const Json& message : *messages) out.messages->push_back(read_message(message));

  const auto generation_prompt = fields.boolean("add_generation_prompt");
  out.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  if (out.continue_final_message && generation_prompt.value_or(false)) {
    throw invalid_argument("Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
                           "continue_final_message");
  }
  out.add_generation_prompt = generation_prompt.value_or(!out.continue_final_message);
  out.add_special_tokens = fields.boolean("add_special_tokens").value_or(false);

  out.template_values = std::make_unique<Json>(Json::object());
  if (!config.default_chat_template_kwargs.empty())
    *out.template_values = parse_json_object(config.default_chat_template_kwargs);
  read_reasoning_effort(fields, out);
  if (const Json* documents = fields.find("documents")) {
    if (!documents->is_array()) throw validation_error("documents: expected a list", "documents");
    (*out.template_values)["documents"] = *documents;
  }
  if (const Json* values = fields.object("chat_template_kwargs")) {
    for (const auto& [name, value] : values->items()) {
      // The names that a template gets from elsewhere can't be replaced (nor a template be brought in this way).
      if (name == "messages" || name == "tools" || name == "chat_template" || name == "tokenize" ||
          name == "bos_token" || name == "eos_token") {
        throw invalid_argument(fmt::format("chat_template_kwargs may not set {}", name), "chat_template_kwargs");
      }
      (*out.template_values)[name] = value;
    }
  }
  out.chat_template = fields.string("chat_template").value_or("");
  if (!out.chat_template.empty() && !config.trust_request_chat_template) {
    throw invalid_argument(
        "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with "
        "untrusted chat template.",
        "chat_template");
  }
  read_tools(fields, out);
}

ChatFields read_chat_fields(const Json& body, const GenerationConfig& defaults, const ServerConfig& config) {
  ChatFields out;
  read_sampling_fields(body, defaults, config, out);
  read_answer_fields(body, config, out);
  read_conversation(body, config, out);
  const FieldReader fields(body);
  check_tool_choice(fields, out);
  SamplingParams& params = out.params;
  params.max_tokens = read_max_tokens(fields, "max_completion_tokens");
  const auto older_name = read_max_tokens(fields, "max_tokens");
  if (!params.max_tokens) params.max_tokens = older_name;
  if (!params.max_tokens) params.max_tokens = defaults.max_new_tokens;
  out.logprobs = fields.boolean("logprobs").value_or(false);
  const int32_t top = fields.small_integer("top_logprobs").value_or(0);
  if (top != 0 && !out.logprobs) {
    throw invalid_argument("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs");
  }
  if (out.logprobs) params.logprobs = top;
  read_logprob_ids(body, out);
  out.return_prompt_text = fields.boolean("return_prompt_text").value_or(false);
  return out;
}

}  // namespace quire
