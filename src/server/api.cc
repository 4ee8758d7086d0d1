#include "server/api.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/log.h"
#include "engine/device.h"
#include "server/json_body.h"
#include "server/json_errors.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxRequestId = 128;

// A client's id as it may appear in ours and in a header.
bool is_plain_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestId &&
         std::ranges::all_of(id, [](char c) { return c > 0x20 && c < 0x7f; });
}

size_t find_longest_token(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) longest = std::max(longest, tokenizer.token_bytes(id).size());
  return longest;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Each word as its own text and as one after a space, where that is another token.
std::vector<std::vector<int32_t>> encode_bad_words(const std::vector<std::string>& words, const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> out;
  for (const std::string& word : words) {
    const std::string bare(word.substr(std::min(word.find_first_not_of(' '), word.size())));
    if (bare.empty()) throw invalid_argument("bad_words cannot contain an empty string.", "bad_words");
    out.push_back(tokenizer.encode(bare, false));
    std::vector<int32_t> spaced = tokenizer.encode(" " + bare, false);
    if (!spaced.empty() && spaced.size() == out.back().size() && spaced.front() != out.back().front())
      out.push_back(std::move(spaced));
  }
  return out;
}

// Eight digits that change with what may change an answer.
std::string settings_hash(const Engine& engine) {
  const EngineConfig& config = engine.config();
  std::string text = QUIRE_VERSION;
  for (const std::string& value :
       {config.model, config.dtype, config.kv_cache_dtype, std::string(engine.device().name())}) {
    text += '\0' + value;
  }
  text += '\0' + std::to_string(engine.max_model_len());
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return fmt::format("{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]);
}

std::string make_fingerprint(const ServerConfig& config, const Engine& engine) {
  if (config.fingerprint_mode == "none") return {};
  if (config.fingerprint_mode == "custom") return config.fingerprint_value;
  const std::string hash = settings_hash(engine);
  return config.fingerprint_mode == "hash" ? hash : "quire-" QUIRE_VERSION "-" + hash;
}

}  // namespace

std::string random_hex() {
  thread_local std::random_device device;
  std::string out;
  for (int i = 0; i < 4; ++i) out += fmt::format("{:08x}", device());
  return out;
}

HttpResponse json_response(std::string body) {
  HttpResponse response;
  response.content_type = "application/json";
  response.body = std::move(body);
  return response;
}

Api::Api(Engine& served, ServerConfig options)
    : engine(served),
      config(std::move(options)),
      started(std::time(nullptr)),
      fingerprint(make_fingerprint(config, engine)) {
  model_names = engine.config().served_model_name;
  if (model_names.empty()) model_names.push_back(engine.model_name());
  try {
    longest_token = find_longest_token(engine.tokenizer());
  } catch (const Error& error) {  // requests are refused one by one; the other endpoints work
    log_warning(error.what());
  }
}

void Api::refuse_when_draining() const {
  if (draining) throw Error(ErrorKind::kUnavailable, "the server is shutting down");
}

void Api::check_model(const std::string& name) const {
  if (name.empty() || std::ranges::find(model_names, name) != model_names.end()) return;
  std::string names;
  for (const std::string& known : model_names) names += (names.empty() ? "`" : ", `") + known + "`";
  throw ApiError(404, "NotFoundError",
                 fmt::format("The model `{}` does not exist. Served here: {}", name.substr(0, 256), names), "model");
}

std::vector<int32_t> Api::encode(const std::string& text, bool add_special_tokens, bool may_be_cut) const {
  // Normalizing may shorten text a little; the factor leaves room for that.
  const auto most = static_cast<size_t>(engine.max_model_len()) * longest_token * 4;
  if (!may_be_cut && text.size() > most) {
    throw invalid_argument(
        fmt::format(
            "This model's maximum context length is {} tokens. However, your prompt has {} bytes, which is more than "
            "that many tokens can hold. Please reduce the length of the prompt.",
            engine.max_model_len(), text.size()),
        "prompt");
  }
  std::vector<int32_t> ids = engine.tokenizer().encode(text, add_special_tokens);
  if (add_special_tokens) warn_of_two_bos(ids);
  return ids;
}

void Api::warn_of_two_bos(const std::vector<int32_t>& ids) const {
  const int32_t bos = engine.tokenizer().bos_id();
  if (bos < 0 || ids.size() < 2 || ids[0] != bos || ids[1] != bos || warned_of_two_bos_.exchange(true)) return;
  log_warning(
      "a prompt begins with BOS twice: its text (or the chat template) has one and add_special_tokens adds another. "
      "Send \"add_special_tokens\": false. Further such prompts are not reported.");
}

void Api::truncate(std::vector<int32_t>& ids, const GenerationFields& fields) const {
  if (!fields.truncate_prompt_tokens) return;
  int64_t most = *fields.truncate_prompt_tokens;
  if (most > engine.max_model_len()) {
    throw invalid_argument(fmt::format("truncate_prompt_tokens value ({}) is greater than max_model_len ({}). Please "
                                       "request a smaller truncation size.",
                                       most, engine.max_model_len()),
                           "truncate_prompt_tokens");
  }
  if (most == -1) most = engine.max_model_len() - 1;
  if (static_cast<int64_t>(ids.size()) <= most) return;
  if (fields.truncate_from_left) {
    ids.erase(ids.begin(), ids.end() - most);
  } else {
    ids.resize(static_cast<size_t>(most));
  }
}

GenerationSession::Prompt Api::render_conversation(const ChatFields& fields, bool any_length) const {
  const ChatFormat& format = engine.chat_format();
  if (format.empty() && fields.chat_template.empty()) {
    throw invalid_argument(
        "this model has no chat template; start the server with --chat-template, or use /v1/completions", "messages");
  }
  ChatFormat::Conversation conversation;
  conversation.messages = fields.messages.get();
  conversation.tools = fields.tools.get();
  conversation.values = fields.template_values.get();
  conversation.add_generation_prompt = fields.add_generation_prompt;
  conversation.continue_final_message = fields.continue_final_message;
  conversation.content_format = content_format_of(config.chat_template_content_format);
  conversation.chat_template = fields.chat_template;
  GenerationSession::Prompt prompt;
  prompt.text = format.render(conversation);
  prompt.ids = encode(prompt.text, fields.add_special_tokens, any_length || fields.truncate_prompt_tokens);
  truncate(prompt.ids, fields);
  if (!fields.return_prompt_text) prompt.text.clear();
  return prompt;
}

std::string Api::make_id(const HttpRequest& request, const std::string& wanted, const char* prefix) const {
  const std::string_view sent = request.header("x-request-id");
  return prefix + (is_plain_id(sent) ? std::string(sent) : is_plain_id(wanted) ? wanted : random_hex());
}

AnswerContext Api::make_context(const HttpRequest& request, GenerationFields fields, const char* id_prefix) const {
  AnswerContext context;
  context.id = make_id(request, fields.request_id, id_prefix);
  context.fingerprint = fingerprint;
  context.model = model_names.front();
  context.created = std::time(nullptr);
  context.tokenizer = &engine.tokenizer();
  context.prompt_tokens_details = config.enable_prompt_tokens_details;
  if (const std::string_view priority = request.header("x-vllm-priority"); !priority.empty()) {
    const auto [end, error] = std::from_chars(priority.data(), priority.data() + priority.size(), fields.priority);
    if (error != std::errc() || end != priority.data() + priority.size())
      throw invalid_argument("X-Vllm-Priority must be an integer", "priority");
  }
  fields.params.bad_words = encode_bad_words(fields.bad_words, engine.tokenizer());
  context.fields = std::move(fields);
  return context;
}

HttpHeaders Api::answer_headers(const HttpRequest& request, const std::string& id) const {
  HttpHeaders headers;
  if (config.enable_request_id_headers) {
    const std::string_view sent = request.header("x-request-id");
    headers.emplace_back("X-Request-Id", is_plain_id(sent) ? std::string(sent) : id.substr(id.find_first_of("-_") + 1));
  }
  return headers;
}

void Api::run(const std::shared_ptr<HttpExchange>& exchange, std::unique_ptr<AnswerFormat> format,
              std::vector<GenerationSession::Prompt> prompts) {
  if (engine.config().runner == "pooling") {
    throw ApiError(501, "NotImplementedError",
                   "This server was started with --runner pooling: it makes embeddings (/v1/embeddings), no text");
  }
  const AnswerContext& context = format->context();
  if (config.enable_log_requests) {
    const SamplingParams& p = context.fields.params;
    log_info(
        fmt::format("Received request {}: {} prompt(s), {} tokens, n={}, temperature={}, top_p={}, top_k={}, seed={}, "
                    "max_tokens={}, stream={}",
                    context.id, prompts.size(), prompts.empty() ? 0 : prompts.front().ids.size(), p.n, p.temperature,
                    p.top_p, p.top_k, p.seed ? std::to_string(*p.seed) : "None",
                    p.max_tokens ? std::to_string(*p.max_tokens) : "None", context.fields.stream));
    if (log_enabled(LogLevel::kDebug) && !prompts.empty()) {
      const std::string text = engine.tokenizer().decode(prompts.front().ids, false);
      log_debug(fmt::format("prompt of {}: {}", context.id,
                            config.max_log_len >= 0 ? text.substr(0, static_cast<size_t>(config.max_log_len)) : text));
    }
  }
  HttpHeaders headers = answer_headers(exchange->request(), context.id);
  ++load;
  std::shared_ptr<void> while_running(nullptr, [this](void*) { --load; });
  GenerationSession::start(
      exchange, std::move(format), std::move(prompts), std::move(headers),
      [this](GenerateRequest request) { return engine.submit(std::move(request)); }, std::move(while_running));
}

std::string take_json_body(HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  const std::string_view encoding = request.header("content-encoding");
  if (!encoding.empty() && !equal_ignoring_case(encoding, "identity")) {
    throw ApiError(415, "Unsupported Media Type", "Content-Encoding is not supported");
  }
  std::string_view type = request.header("content-type");
  type = trim(type.substr(0, type.find(';')));
  if (!equal_ignoring_case(type, "application/json")) {
    throw ApiError(400, "Bad Request", "Unsupported Media Type: Only 'application/json' is allowed");
  }
  return exchange.take_body();
}

void handle_tokenize(Api& api, HttpExchange& exchange) {
  const JsonPointer json = keep_json(parse_json_object(take_json_body(exchange)));
  const Json& body = *json;
  const FieldReader fields(body);
  api.check_model(fields.string("model").value_or(""));
  std::vector<int32_t> ids;
  if (fields.find("messages") != nullptr) {
    ChatFields chat;
    read_conversation(body, api.config, chat);
    ids = api.render_conversation(chat, true).ids;
  } else {
    const auto prompt = fields.string("prompt");
    if (!prompt) throw validation_error("prompt: field required", "prompt");
    ids = api.encode(*prompt, fields.boolean("add_special_tokens").value_or(true), true);
  }
  std::string strings = "null";
  if (fields.boolean("return_token_strs").value_or(false)) {
    strings = "[";
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i > 0) strings += ',';
      append_json_string(strings, api.engine.tokenizer().token_string(ids[i]));
    }
    strings += ']';
  }
  exchange.respond(json_response(fmt::format(R"({{"count":{},"max_model_len":{},"tokens":{},"token_strs":{}}})",
                                             ids.size(), api.engine.max_model_len(), ids_json(ids), strings)));
}

void handle_detokenize(Api& api, HttpExchange& exchange) {
  const JsonPointer json = keep_json(parse_json_object(take_json_body(exchange)));
  const Json& body = *json;
  const FieldReader fields(body);
  api.check_model(fields.string("model").value_or(""));
  if (fields.find("tokens") == nullptr) throw validation_error("tokens: field required", "tokens");
  const std::vector<int32_t> ids = fields.integers("tokens");
  const Tokenizer& tokenizer = api.engine.tokenizer();
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) {
      throw invalid_argument(fmt::format("tokens contains token id {}, which is out of vocabulary: ids go from 0 to {}",
                                         id, tokenizer.vocab_size() - 1),
                             "tokens");
    }
  }
  exchange.respond(json_response(fmt::format(R"({{"prompt":{}}})", json_string(tokenizer.decode(ids, false)))));
}

HttpResponse models_response(const Api& api) {
  Json data = Json::array();
  for (const std::string& name : api.model_names) {
    Json permission = {{"id", "modelperm-" + random_hex()},
                       {"object", "model_permission"},
                       {"created", api.started},
                       {"allow_create_engine", false},
                       {"allow_sampling", true},
                       {"allow_logprobs", true},
                       {"allow_search_indices", false},
                       {"allow_view", true},
                       {"allow_fine_tuning", false},
                       {"organization", "*"},
                       {"group", nullptr},
                       {"is_blocking", false}};
    data.push_back({{"id", name},
                    {"object", "model"},
                    {"created", api.started},
                    {"owned_by", "quire"},
                    {"root", api.engine.config().model},
                    {"parent", nullptr},
                    {"max_model_len", api.engine.max_model_len()},
                    {"permission", Json::array({std::move(permission)})}});
  }
  return json_response(
      Json({{"object", "list"}, {"data", std::move(data)}}).dump(-1, ' ', false, Json::error_handler_t::replace));
}

namespace {

// What the model folder's tokenizer_config.json says; empty if there is none.
Json read_tokenizer_config(const EngineConfig& config) {
  const std::string& name = config.tokenizer.empty() ? config.model : config.tokenizer;
  if (name.empty() || name.ends_with(".gguf")) return Json::object();
  try {
    Json file = Json::parse(open_tokenizer_files(name).tokenizer_config_json, nullptr, false);
    return file.is_object() ? file : Json::object();
  } catch (const Error&) {  // a file by itself
    return Json::object();
  }
}

}  // namespace

HttpResponse tokenizer_info_response(const Api& api) {
  const Tokenizer& tokenizer = api.engine.tokenizer();
  const ChatFormat& format = api.engine.chat_format();
  Json info = read_tokenizer_config(api.engine.config());
  info.erase("added_tokens_decoder");  // long, and no client reads it
  if (!info.contains("tokenizer_class")) info["tokenizer_class"] = "PreTrainedTokenizerFast";
  const auto token = [&](int32_t id) { return id >= 0 ? Json(std::string(tokenizer.token_string(id))) : Json(); };
  info["bos_token"] = token(tokenizer.bos_id());
  info["eos_token"] = token(tokenizer.eos_id());
  for (const auto& [name, text] : format.special_tokens()) info[name] = text;
  if (format.has("default")) info["chat_template"] = format.templates().find("default")->second.source();
  info["vocab_size"] = tokenizer.vocab_size();
  info["model_max_length"] = api.engine.max_model_len();
  return json_response(info.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace quire
