#pragma once
// A server on a loopback port with small handlers in place of an engine.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/admission.h"
#include "raw_client.h"
#include "server/api.h"
#include "server/app.h"
#include "server/http_server.h"
#include "server/json_body.h"
#include "server/request_fields.h"

namespace quire {

inline constexpr const char* kHealth = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";

inline ServerConfig test_config() {
  ServerConfig config;
  config.host = "127.0.0.1";
  config.port = 0;
  config.disable_access_log = true;
  config.allowed_hosts = {"x"};
  return config;
}

inline HttpResponse text_response(std::string text) {
  HttpResponse response;
  response.content_type = "text/plain";
  response.body = std::move(text);
  return response;
}

// A request body through everything but an engine.
inline void check_completion(const std::shared_ptr<HttpExchange>& exchange) {
  const CompletionFields fields =
      read_completion_fields(parse_json_object(take_json_body(*exchange)), {}, ServerConfig());
  for (const CompletionPrompt& prompt : fields.prompts) {
    GenerateRequest request;
    request.prompt_ids = prompt.is_text ? std::vector<int32_t>(prompt.text.size() + 1, 1) : prompt.ids;
    request.params = fields.params;
    admit_request(request, {.max_model_len = 2048, .kv_tokens = 4096, .vocab_size = 49152, .max_logprobs = 20});
  }
  exchange->respond(text_response("ok"));
}

inline void check_chat(const std::shared_ptr<HttpExchange>& exchange) {
  read_chat_fields(parse_json_object(take_json_body(*exchange)), {}, ServerConfig());
  exchange->respond(text_response("ok"));
}

struct TestServer {
  explicit TestServer(const ServerConfig& config = test_config(), std::vector<Route> more = {}) {
    std::vector<Route> routes = {
        {{"GET"}, "/health", [](const std::shared_ptr<HttpExchange>& exchange) { exchange->respond({}); }, true},
        {{"POST"}, "/v1/completions", check_completion},
        {{"POST"}, "/v1/chat/completions", check_chat},
        {{"POST"},
         "/echo",
         [](const std::shared_ptr<HttpExchange>& exchange) {
           exchange->respond(text_response(exchange->take_body()));
         }},
    };
    for (Route& route : more) routes.push_back(std::move(route));
    router = std::make_unique<Router>(config, std::move(routes));
    server = std::make_unique<HttpServer>(
        config, [this](std::shared_ptr<HttpExchange> exchange) { (*router)(std::move(exchange)); });
    server->start();
  }
  uint16_t port() const { return server->port(); }
  int health() const {
    RawClient client(port());
    client.send(kHealth);
    return client.read_answer().status;
  }
  std::unique_ptr<Router> router;
  std::unique_ptr<HttpServer> server;
};

// JSON text keeps bytes above 0x7f as characters of Latin-1; the wire has the bytes.
inline std::string to_bytes(const std::string& utf8) {
  std::string out;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto byte = static_cast<unsigned char>(utf8[i]);
    if ((byte == 0xC2 || byte == 0xC3) && i + 1 < utf8.size()) {
      out += static_cast<char>((byte & 3) << 6 | (static_cast<unsigned char>(utf8[++i]) & 0x3F));
    } else {
      out += utf8[i];
    }
  }
  return out;
}

}  // namespace quire
