#include "server/embeddings.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "server/api.h"
#include "server/json_body.h"
#include "server/json_errors.h"
#include "server/log_failure.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxInputs = 2048;
constexpr int64_t kMaxAnswer = int64_t{64} << 20;           // bytes, about
constexpr int64_t kNumberDigits = 14, kNumberInBase64 = 6;  // bytes of one number in an answer, about

// A field that has one value here.
void expect_value(const FieldReader& fields, const char* name, std::initializer_list<std::string_view> known) {
  const auto value = fields.string(name);
  if (!value || std::ranges::find(known, *value) != known.end()) return;
  std::string names;
  for (const std::string_view word : known) names += (names.empty() ? "" : ", ") + std::string(word);
  throw invalid_argument(fmt::format("{} must be one of {}, got {}", name, names, value->substr(0, 64)), name);
}

void read_truncation(const FieldReader& fields, EmbeddingFields& out) {
  out.truncate_prompt_tokens = fields.integer("truncate_prompt_tokens");
  if (out.truncate_prompt_tokens && (*out.truncate_prompt_tokens < -1 || *out.truncate_prompt_tokens == 0)) {
    throw invalid_argument(
        fmt::format("truncate_prompt_tokens must be -1 or at least 1, got {}", *out.truncate_prompt_tokens),
        "truncate_prompt_tokens");
  }
  expect_value(fields, "truncation_side", {"left", "right"});
  // The beginning says what a text is about, so that is what stays.
  out.truncate_from_left = fields.string("truncation_side").value_or("right") == "left";
}

std::vector<std::vector<int32_t>> encode_inputs(const Api& api, EmbeddingFields& fields) {
  std::vector<std::vector<int32_t>> all;
  if (fields.conversation) {
    all.push_back(api.render_conversation(*fields.conversation, fields.truncate_prompt_tokens.has_value()).ids);
  } else {
    all.reserve(fields.inputs.size());
    for (CompletionPrompt& input : fields.inputs) {
      all.push_back(input.is_text
                        ? api.encode(input.text, fields.add_special_tokens, fields.truncate_prompt_tokens.has_value())
                        : std::move(input.ids));
    }
    fields.inputs.clear();
  }
  if (fields.truncate_prompt_tokens) {
    GenerationFields cut;
    cut.truncate_prompt_tokens = fields.truncate_prompt_tokens;
    if (*cut.truncate_prompt_tokens == -1) cut.truncate_prompt_tokens = api.engine.max_model_len();  // no room for more
    cut.truncate_from_left = fields.truncate_from_left;
    for (std::vector<int32_t>& ids : all) api.truncate(ids, cut);
  }
  return all;
}

// Numbers take many times the room of the request that asks for them.
void check_answer_size(const EmbeddingFields& fields, int64_t hidden_size) {
  const int64_t inputs = fields.conversation ? 1 : std::ssize(fields.inputs);
  const int64_t dimensions = fields.dimensions.value_or(hidden_size);
  const int64_t bytes = inputs * dimensions * (fields.base64 ? kNumberInBase64 : kNumberDigits);
  if (bytes <= kMaxAnswer) return;
  throw invalid_argument(
      fmt::format("input: the answer to {} inputs with {} dimensions each would have about {} bytes, more than the "
                  "limit of {}. Please send fewer inputs at a time{}.",
                  inputs, dimensions, bytes, kMaxAnswer, fields.base64 ? "" : ", or set encoding_format to base64"),
      "input");
}

void handle_embeddings(Api& api, const std::shared_ptr<HttpExchange>& exchange) {
  api.refuse_when_draining();
  EmbeddingSession::Task task;
  {
    const std::string body = take_json_body(*exchange);
    const JsonPointer json = keep_json(parse_json_object(body));
    task.fields = read_embedding_fields(*json, api.engine.config(), api.config, api.engine.model_config().hidden_size);
  }
  api.check_model(task.fields.model);
  task.ids = encode_inputs(api, task.fields);
  GenerationFields common;
  common.priority = task.fields.priority;
  common.request_id = task.fields.request_id;
  AnswerContext context = api.make_context(exchange->request(), std::move(common), "embd-");
  task.id = std::move(context.id);
  task.model = std::move(context.model);
  task.created = context.created;
  task.priority = context.fields.priority;
  task.pooling = api.engine.config().pooling;
  task.prompt_tokens_details = api.config.enable_prompt_tokens_details;
  task.headers = api.answer_headers(exchange->request(), task.id);
  task.draining = &api.draining;
  if (api.config.enable_log_requests) {
    log_info(fmt::format("Received request {}: {} input(s), {} tokens in the first, pooling={}", task.id,
                         task.ids.size(), task.ids.front().size(), task.pooling == Pooling::kMean ? "MEAN" : "LAST"));
  }
  ++api.load;
  std::shared_ptr<void> while_running(nullptr, [&api](void*) { --api.load; });
  EmbeddingSession::start(
      exchange, std::move(task), [&api](GenerateRequest request) { return api.engine.submit(std::move(request)); },
      std::move(while_running));
}

}  // namespace

EmbeddingFields read_embedding_fields(const Json& body, const EngineConfig& engine, const ServerConfig& server,
                                      int64_t hidden_size) {
  const FieldReader fields(body);
  EmbeddingFields out;
  out.model = fields.string("model").value_or("");
  const auto add_special_tokens = fields.boolean("add_special_tokens");
  if (fields.find("messages") != nullptr) {
    if (fields.find("input") != nullptr) throw invalid_argument("input and messages exclude each other", "input");
    ChatFields& chat = out.conversation.emplace();
    read_conversation(body, server, chat);
    chat.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(false);
  } else {
    out.inputs = read_prompts(body, "input", kMaxInputs);
    out.add_special_tokens = add_special_tokens.value_or(true);
  }
  expect_value(fields, "encoding_format", {"float", "base64"});
  out.base64 = fields.string("encoding_format").value_or("float") == "base64";
  expect_value(fields, "embed_dtype", {"float32", "float"});
  expect_value(fields, "endianness", {"native", "little"});
  out.normalize = engine.normalize_embeddings;
  for (const char* name : {"normalize", "use_activation"}) out.normalize = fields.boolean(name).value_or(out.normalize);
  out.dimensions = fields.integer("dimensions");
  if (out.dimensions && (*out.dimensions < 1 || *out.dimensions > hidden_size)) {
    throw invalid_argument(fmt::format("dimensions must be between 1 and {}, the model's hidden size, got {}. "
                                       "(parameter=dimensions, value={})",
                                       hidden_size, *out.dimensions, *out.dimensions),
                           "dimensions");
  }
  check_answer_size(out, hidden_size);
  read_truncation(fields, out);
  out.priority = fields.integer("priority").value_or(0);
  constexpr size_t kMaxRequestId = 128;
  out.request_id = fields.string("request_id").value_or("").substr(0, kMaxRequestId);
  fields.string("user");
  out.cache_salt = read_cache_salt(body);
  return out;
}

std::vector<float> finish_embedding(std::span<const float> state, std::optional<int64_t> dimensions, bool normalize) {
  const size_t n = dimensions ? std::min(static_cast<size_t>(*dimensions), state.size()) : state.size();
  std::vector<float> out(state.begin(), state.begin() + static_cast<std::ptrdiff_t>(n));
  if (!normalize) return out;
  double squares = 0;
  for (const float x : out) squares += static_cast<double>(x) * static_cast<double>(x);
  const double length = std::sqrt(squares);
  if (length == 0) return out;
  for (float& x : out) x = static_cast<float>(static_cast<double>(x) / length);
  return out;
}

std::string embedding_json(std::span<const float> embedding, bool base64) {
  std::string out;
  if (!base64) {
    out.reserve(embedding.size() * static_cast<size_t>(kNumberDigits) + 2);
    out += '[';
    for (size_t i = 0; i < embedding.size(); ++i) {
      if (i > 0) out += ',';
      fmt::format_to(std::back_inserter(out), "{}", embedding[i]);
    }
    out += ']';
    return out;
  }
  static_assert(std::endian::native == std::endian::little);
  const size_t bytes = embedding.size_bytes(), length = (bytes + 2) / 3 * 4;
  out.resize(length + 2);
  out.front() = '"';
  auto* const text = reinterpret_cast<unsigned char*>(out.data() + 1);
  EVP_EncodeBlock(text, reinterpret_cast<const unsigned char*>(embedding.data()), static_cast<int>(bytes));
  out.back() = '"';  // where the encoder put its NUL
  return out;
}

void EmbeddingSession::start(const std::shared_ptr<HttpExchange>& exchange, Task task, Submit submit,
                             std::shared_ptr<void> while_running) {
  const auto session =
      std::make_shared<EmbeddingSession>(exchange, std::move(task), std::move(submit), std::move(while_running));
  // The connection holds the session by this callback until the answer ends; the engine's listener does not hold it.
  exchange->on_disconnect([session] { session->cancel(); });
  exchange->post([weak = std::weak_ptr(session)] {
    if (const auto alive = weak.lock()) alive->begin();
  });
}

EmbeddingSession::EmbeddingSession(std::shared_ptr<HttpExchange> exchange, Task task, Submit submit,
                                   std::shared_ptr<void> while_running)
    : exchange_(std::move(exchange)),
      task_(std::move(task)),
      submit_(std::move(submit)),
      while_running_(std::move(while_running)),
      answers_(task_.ids.size()) {
  running_.reserve(std::min(kAtOnce, answers_.size()));  // nothing that was submitted fails to get its place
}

void EmbeddingSession::begin() {
  try {
    waker_ = exchange_->make_waker([weak = weak_from_this()] {
      if (const auto alive = weak.lock()) alive->pump();
    });
  } catch (const std::bad_alloc&) {
    give_up(ErrorKind::kUnavailable, "out of memory for this request");
    return;
  }
  pump();
}

void EmbeddingSession::pump() {
  if (ended_) return;
  try {
    advance();
  } catch (const std::bad_alloc&) {
    give_up(ErrorKind::kUnavailable, "out of memory for this request");
  } catch (const std::exception& error) {
    log_failure("a request", error);
    give_up(ErrorKind::kInternal, "internal error");
  }
}

void EmbeddingSession::advance() {
  try {
    for (size_t i = 0; i < running_.size() && !ended_;) {
      if (take(running_[i])) {
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    if (ended_) return;
    submit_more();
    if (running_.empty()) finish();
  } catch (const Error& error) {
    fail(error);
  }
}

void EmbeddingSession::submit_more() {
  while (next_ < task_.ids.size() && running_.size() < kAtOnce) {
    std::vector<int32_t>& ids = task_.ids[next_];
    GenerateRequest request;
    request.id = task_.ids.size() == 1 ? task_.id : fmt::format("{}-{}", task_.id, next_);
    request.prompt_ids = ids;  // a copy: the queue may be full
    request.pooling = task_.pooling;
    request.priority = task_.priority;
    request.cache_salt = task_.fields.cache_salt;
    try {
      running_.push_back({next_, submit_(std::move(request))});
    } catch (const Error& error) {
      // One of ours makes room when it ends, and wakes the session to try again.
      const bool full = error.kind() == ErrorKind::kUnavailable && !(task_.draining != nullptr && *task_.draining);
      if (full && !running_.empty()) return;
      throw;
    }
    ++next_;
    prompt_tokens_ += std::ssize(ids);
    ids = std::vector<int32_t>();  // = {} would keep its memory
    running_.back().generation->set_listener(waker_);
  }
}

bool EmbeddingSession::take(const Running& running) {
  events_.clear();
  running.generation->poll(events_);
  for (const GenerationEvent& event : events_) {
    if (event.finish == FinishReason::kNone) continue;
    if (event.finish == FinishReason::kError)
      throw Error(event.error_kind, event.error.empty() ? "the request failed in the engine" : event.error);
    if (event.finish == FinishReason::kAbort) {
      throw Error(ErrorKind::kUnavailable, "the request was aborted: the server is shutting down");
    }
    const EmbeddingFields& fields = task_.fields;
    answers_[running.input] = embedding_json(
        finish_embedding(running.generation->embedding(), fields.dimensions, fields.normalize), fields.base64);
    cached_tokens_ += running.generation->cached_tokens();
    return true;
  }
  return false;
}

void EmbeddingSession::finish() {
  HttpResponse response;
  response.content_type = "application/json";
  response.headers = task_.headers;
  std::string& body = response.body;
  constexpr size_t kFrame = 64, kRest = 512;  // around an embedding, around all
  size_t bytes = kRest;
  for (const std::string& answer : answers_) bytes += answer.size() + kFrame;
  body.reserve(bytes);
  fmt::format_to(std::back_inserter(body), R"({{"id":{},"object":"list","created":{},"model":{},"data":[)",
                 json_string(task_.id), task_.created, json_string(task_.model));
  for (size_t i = 0; i < answers_.size(); ++i) {
    fmt::format_to(std::back_inserter(body), R"({}{{"index":{},"object":"embedding","embedding":)", i > 0 ? "," : "",
                   i);
    body += std::exchange(answers_[i], {});  // freed as they go: together they may be large
    body += '}';
  }
  fmt::format_to(std::back_inserter(body),
                 R"(],"usage":{{"prompt_tokens":{0},"total_tokens":{0},"completion_tokens":0,)"
                 R"("prompt_tokens_details":{1}}}}})",
                 prompt_tokens_,
                 task_.prompt_tokens_details ? fmt::format(R"({{"cached_tokens":{}}})", cached_tokens_) : "null");
  ended_ = true;
  exchange_->respond(std::move(response));
}

void EmbeddingSession::fail(const Error& error) {
  cancel();
  HttpResponse response = error_response(error);
  response.headers.insert(response.headers.end(), task_.headers.begin(), task_.headers.end());
  exchange_->respond(std::move(response));
}

// If there is no memory even for the error, the exchange is let go, which ends it.
void EmbeddingSession::give_up(ErrorKind kind, const char* message) noexcept {
  try {
    fail(Error(kind, message));
  } catch (const std::exception&) {
    ended_ = true;
    exchange_ = nullptr;
  }
}

void EmbeddingSession::cancel() {
  ended_ = true;
  for (const Running& running : running_) running.generation->cancel();
}

void append_embeddings_routes(Api& api, std::vector<Route>& routes) {
  routes.push_back({{"POST"}, "/v1/embeddings", [&api](const std::shared_ptr<HttpExchange>& exchange) {
                      handle_embeddings(api, exchange);
                    }});
}

}  // namespace quire
