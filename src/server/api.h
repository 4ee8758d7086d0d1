#pragma once
// What the endpoints share: the engine, the names it serves, and how a request gets from fields to a running session.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/answer.h"
#include "server/config.h"
#include "server/generation_session.h"
#include "server/http_metrics.h"
#include "server/http_types.h"

namespace quire {

struct Api {
  Api(Engine& served, ServerConfig options);

  Engine& engine;
  const ServerConfig config;
  std::vector<std::string> model_names;  // served names, first = the one answers have
  int64_t started = 0;                   // Unix time
  size_t longest_token = 0;              // bytes; bounds how many tokens a text has from below
  std::atomic<int64_t> load{0};          // generation requests at work
  std::atomic<bool> draining{false};     // no new requests
  std::string fingerprint;               // system_fingerprint of answers; empty = none
  HttpMetrics http_metrics;

  void refuse_when_draining() const;  // throws Error(kUnavailable)
  // Throws ApiError 404 naming the valid names. An empty name is the served model.
  void check_model(const std::string& name) const;
  // Ids of a prompt, refused before tokenizing if it can't fit max_model_len.
  std::vector<int32_t> encode(const std::string& text, bool add_special_tokens, bool may_be_cut) const;
  // Cuts ids as truncate_prompt_tokens says.
  void truncate(std::vector<int32_t>& ids, const GenerationFields& fields) const;
  // Renders the template, encodes, truncates. `fields` as read_conversation left it. The text is kept if the answer
  // shows it. any_length: to be counted, not run.
  GenerationSession::Prompt render_conversation(const ChatFields& fields, bool any_length = false) const;

  // "cmpl-" and the client's id, or a random one.
  std::string make_id(const HttpRequest& request, const std::string& wanted, const char* prefix) const;
  AnswerContext make_context(const HttpRequest& request, GenerationFields fields, const char* id_prefix) const;
  HttpHeaders answer_headers(const HttpRequest& request, const std::string& id) const;
  void run(const std::shared_ptr<HttpExchange>& exchange, std::unique_ptr<AnswerFormat> format,
           std::vector<GenerationSession::Prompt> prompts);

 private:
  void warn_of_two_bos(const std::vector<int32_t>& ids) const;
  mutable std::atomic<bool> warned_of_two_bos_{false};  // once is enough
};

// POST handlers: the body must be application/json. They throw Error; the caller answers with it.
void handle_completion(Api& api, const std::shared_ptr<HttpExchange>& exchange);
void handle_chat(Api& api, const std::shared_ptr<HttpExchange>& exchange);
void handle_tokenize(Api& api, HttpExchange& exchange);
void handle_detokenize(Api& api, HttpExchange& exchange);

// GET handlers.
HttpResponse models_response(const Api& api);
HttpResponse tokenizer_info_response(const Api& api);
HttpResponse json_response(std::string body);

std::string random_hex();  // 32 digits

// The body as text: checks Content-Type and Content-Encoding.
std::string take_json_body(HttpExchange& exchange);

}  // namespace quire
