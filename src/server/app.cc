#include "server/app.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <random>
#include <utility>

#include "server/api.h"
#include "server/dev_routes.h"
#include "server/embeddings.h"
#include "server/http_metrics.h"
#include "server/json_errors.h"
#include "server/messages.h"
#include "server/openapi.h"
#include "server/responses.h"

namespace quire {
namespace {

std::array<unsigned char, 32> sha256(std::string_view text) {
  std::array<unsigned char, 32> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

bool contains(const std::vector<std::string>& list, std::string_view word) {
  return std::ranges::any_of(list,
                             [&](const std::string& item) { return item == "*" || equal_ignoring_case(item, word); });
}

HttpResponse plain_status(int status) { return error_response(status, status_phrase(status), status_phrase(status)); }

// "Example.com:8000", "example.com.", "[::1]:8000" without what is not the name or address.
std::string_view bare_host(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, std::min(host.find(']'), host.size()) - 1);
  if (std::ranges::count(host, ':') == 1) host = host.substr(0, host.find(':'));
  if (host.ends_with('.')) host.remove_suffix(1);
  return host;
}

bool is_loopback(std::string_view host) {
  if (equal_ignoring_case(host, "localhost")) return true;
  in_addr v4{};
  in6_addr v6{};
  const std::string text(host.substr(0, 64));
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

// An exchange whose answers get more headers, where they don't have them already.
class WithHeaders : public HttpExchange {
 public:
  WithHeaders(std::shared_ptr<HttpExchange> inner, HttpHeaders headers)
      : inner_(std::move(inner)), headers_(std::move(headers)) {}
  const HttpRequest& request() const override { return inner_->request(); }
  std::string take_body() override { return inner_->take_body(); }
  void respond(HttpResponse response) override { inner_->respond(add(std::move(response))); }
  void begin_stream(HttpResponse head) override { inner_->begin_stream(add(std::move(head))); }
  void write(std::string_view bytes) override { inner_->write(bytes); }
  void end_stream() override { inner_->end_stream(); }
  void on_disconnect(std::function<void()> callback) override { inner_->on_disconnect(std::move(callback)); }
  void post(std::function<void()> work) override { inner_->post(std::move(work)); }
  std::function<void()> make_waker(std::function<void()> work) override { return inner_->make_waker(std::move(work)); }

 private:
  HttpResponse add(HttpResponse response) const {
    const size_t own = response.headers.size();
    for (const auto& header : headers_) {
      const bool there = std::any_of(
          response.headers.begin(), response.headers.begin() + static_cast<ptrdiff_t>(own),
          [&](const HttpHeaders::value_type& known) { return equal_ignoring_case(known.first, header.first); });
      if (!there) response.headers.push_back(header);
    }
    return response;
  }
  std::shared_ptr<HttpExchange> inner_;
  HttpHeaders headers_;
};

}  // namespace

KeyCheck::KeyCheck(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (!key.empty()) digests_.push_back(sha256(key));
  }
}

bool KeyCheck::accepts(std::string_view authorization) const {
  if (open()) return true;
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.size() < kScheme.size() || !equal_ignoring_case(authorization.substr(0, kScheme.size()), kScheme))
    return false;
  return accepts_key(authorization.substr(kScheme.size()));
}

bool KeyCheck::accepts_key(std::string_view key) const {
  if (open()) return true;
  const auto digest = sha256(key);
  int found = 0;  // every key is compared, so that the time does not tell which one it was
  for (const auto& known : digests_) found |= CRYPTO_memcmp(digest.data(), known.data(), known.size()) == 0 ? 1 : 0;
  return found != 0;
}

HostCheck::HostCheck(const ServerConfig& config) : any_(!config.uds.empty()), names_(config.allowed_hosts) {
  for (std::string& name : names_) name = bare_host(name);
  if (names_.empty() && !is_loopback(bare_host(config.host))) any_ = true;
  if (std::ranges::find(names_, "*") != names_.end()) any_ = true;
}

bool HostCheck::accepts(std::string_view host) const {
  if (any_ || host.empty()) return true;
  const std::string_view name = bare_host(host);
  return is_loopback(name) ||
         std::ranges::any_of(names_, [&](const std::string& known) { return equal_ignoring_case(known, name); });
}

Router::Router(const ServerConfig& config, std::vector<Route> routes, HttpMetrics* metrics)
    : config_(config), hosts_(config), keys_(config.api_keys), routes_(std::move(routes)), metrics_(metrics) {
  std::random_device device;
  id_prefix_ = fmt::format("{:08x}{:08x}", device(), device());
  while (!config_.root_path.empty() && config_.root_path.back() == '/') config_.root_path.pop_back();
  if (metrics_ != nullptr) metrics_->set_routes(routes_, config_.root_path);
}

bool Router::origin_allowed(std::string_view origin) const { return contains(config_.allowed_origins, origin); }

HttpHeaders Router::cors_headers(const HttpRequest& request) const {
  HttpHeaders headers;
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !origin_allowed(origin)) return headers;
  const bool all = contains(config_.allowed_origins, "*") && !config_.allow_credentials;
  headers.emplace_back("Access-Control-Allow-Origin", all ? "*" : std::string(origin));
  if (!all) headers.emplace_back("Vary", "Origin");
  if (config_.allow_credentials) headers.emplace_back("Access-Control-Allow-Credentials", "true");
  return headers;
}

HttpResponse Router::preflight(const HttpRequest& request) const {
  HttpResponse response;
  response.content_type = "text/plain; charset=utf-8";
  std::string refused;
  if (!origin_allowed(request.header("origin"))) refused += "origin, ";
  const std::string_view method = request.header("access-control-request-method");
  if (!contains(config_.allowed_methods, method)) refused += "method, ";
  const std::string_view wanted = request.header("access-control-request-headers");
  if (!wanted.empty() && !contains(config_.allowed_headers, "*")) {
    std::string_view rest = wanted;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      std::string_view name = rest.substr(0, comma);
      while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
      if (!contains(config_.allowed_headers, name)) {
        refused += "headers, ";
        break;
      }
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  if (!refused.empty()) {
    response.status = 400;
    response.body = "Disallowed CORS " + refused.substr(0, refused.size() - 2);
    return response;
  }
  response.headers.emplace_back("Access-Control-Allow-Methods", contains(config_.allowed_methods, "*")
                                                                    ? "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
                                                                    : join(config_.allowed_methods));
  response.headers.emplace_back("Access-Control-Allow-Headers", contains(config_.allowed_headers, "*")
                                                                    ? std::string(wanted)
                                                                    : join(config_.allowed_headers));
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  response.body = "OK";
  return response;
}

HttpHeaders Router::extra_headers(const HttpRequest& request) const {
  HttpHeaders headers = cors_headers(request);
  if (config_.enable_request_id_headers) {
    constexpr size_t kMaxId = 128;
    const std::string_view sent = request.header("x-request-id");
    headers.emplace_back("X-Request-Id", !sent.empty() && sent.size() <= kMaxId
                                             ? std::string(sent)
                                             : fmt::format("{}{:016x}", id_prefix_, next_id_++));
  }
  return headers;
}

void Router::operator()(std::shared_ptr<HttpExchange> exchange) const {
  if (metrics_ != nullptr) exchange = metrics_->measure(std::move(exchange));
  const HttpRequest& request = exchange->request();
  if (HttpHeaders headers = extra_headers(request); !headers.empty()) {
    exchange = std::make_shared<WithHeaders>(std::move(exchange), std::move(headers));
  }
  if (const std::string_view host = request.header("host"); !hosts_.accepts(host)) {
    exchange->respond(error_response(
        403, "Forbidden",
        fmt::format("this server is not to be called '{}'; --allowed-hosts adds names", host.substr(0, 256))));
    return;
  }
  const bool preflight_request = request.method == "OPTIONS" && !config_.allowed_origins.empty() &&
                                 !request.header("origin").empty() &&
                                 !request.header("access-control-request-method").empty();
  if (preflight_request) {
    exchange->respond(preflight(request));
    return;
  }
  route(exchange);
}

void Router::route(const std::shared_ptr<HttpExchange>& exchange) const {
  const HttpRequest& request = exchange->request();
  if (request.method == "TRACE" || request.method == "CONNECT") {
    HttpResponse response = plain_status(405);
    response.headers.emplace_back("Allow", "GET, POST");
    exchange->respond(std::move(response));
    return;
  }
  const std::string_view path = path_below(config_.root_path, request.path);
  const auto found = std::ranges::find_if(routes_, [&](const Route& r) { return r.path == path; });
  const bool free = (found != routes_.end() && found->open) || request.method == "OPTIONS";
  // Anthropic's clients send a key in a header of their own.
  if (!free && !keys_.accepts(request.header("authorization")) && !keys_.accepts_key(request.header("x-api-key"))) {
    HttpResponse response = json_response(R"({"error":"Unauthorized"})");
    response.status = 401;
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    exchange->respond(std::move(response));
    return;
  }
  if (found == routes_.end()) {
    exchange->respond(plain_status(404));
    return;
  }
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  if (std::ranges::find(found->methods, method) == found->methods.end()) {
    HttpResponse response = plain_status(405);
    response.headers.emplace_back("Allow", join(found->methods));
    exchange->respond(std::move(response));
    return;
  }
  try {
    found->handle(exchange);
  } catch (const Error& error) {
    exchange->respond(error_response(error));
  }
}

std::vector<Route> api_routes(Api& api) {
  using Exchange = const std::shared_ptr<HttpExchange>&;
  const auto refuse_when_draining = [&api] {
    if (api.draining) throw Error(ErrorKind::kUnavailable, "the server is shutting down");
  };
  const auto health = [&api](Exchange exchange) {
    HttpResponse response;
    if (!api.engine.healthy() || api.draining) response.status = 503;
    exchange->respond(std::move(response));
  };
  const auto post = [&](const char* path, void (*handle)(Api&, Exchange)) {
    return Route{{"POST"}, path, [&api, handle, refuse_when_draining](Exchange exchange) {
                   refuse_when_draining();
                   handle(api, exchange);
                 }};
  };
  std::vector<Route> routes = {
      {{"GET"}, "/health", health, true},
      {{"GET", "POST"}, "/ping", health, true},
      {{"GET"},
       "/version",
       [](Exchange exchange) { exchange->respond(json_response(R"({"version":")" QUIRE_VERSION R"("})")); }},
      {{"GET"},
       "/load",
       [&api](Exchange exchange) {
         const int64_t load = api.config.enable_server_load_tracking ? api.load.load() : 0;
         exchange->respond(json_response(fmt::format(R"({{"server_load":{}}})", load)));
       }},
      {{"GET"}, "/v1/models", [&api](Exchange exchange) { exchange->respond(models_response(api)); }},
      post("/v1/completions", handle_completion),
      post("/v1/chat/completions", handle_chat),
      {{"POST"}, "/tokenize", [&api](Exchange exchange) { handle_tokenize(api, *exchange); }},
      {{"POST"}, "/detokenize", [&api](Exchange exchange) { handle_detokenize(api, *exchange); }},
  };
  if (api.config.enable_tokenizer_info_endpoint) {
    routes.push_back(
        {{"GET"}, "/tokenizer_info", [&api](Exchange exchange) { exchange->respond(tokenizer_info_response(api)); }});
  }
  if (api.config.server_dev_mode) append_dev_routes(api, routes);
  append_metrics_routes(api, routes);
  append_embeddings_routes(api, routes);
  append_responses_routes(api, routes);
  append_messages_routes(api, routes);
  append_openapi_routes(api, routes);  // the last ones: they describe the others
  return routes;
}

}  // namespace quire
