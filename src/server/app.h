#pragma once
// The application behind the HTTP server: host names, cross-origin rules, keys, routes.
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/config.h"
#include "server/http_types.h"

namespace quire {

struct Api;
class HttpMetrics;

// Compares bearer keys by their SHA-256, in constant time.
class KeyCheck {
 public:
  explicit KeyCheck(const std::vector<std::string>& keys);
  bool open() const { return digests_.empty(); }
  bool accepts(std::string_view authorization) const;  // "Bearer KEY"
  bool accepts_key(std::string_view key) const;

 private:
  std::vector<std::array<unsigned char, 32>> digests_;
};

// Whether a request may be addressed to a name, so that a web page can't reach the server under a name of its own that
// resolves to it (DNS rebinding). ServerConfig::allowed_hosts says when.
class HostCheck {
 public:
  explicit HostCheck(const ServerConfig& config);
  // The Host header's value; one that is empty (HTTP/1.0) is accepted.
  bool accepts(std::string_view host) const;

 private:
  bool any_;
  std::vector<std::string> names_;
};

struct Route {
  std::vector<std::string> methods;
  std::string path;
  std::function<void(const std::shared_ptr<HttpExchange>&)> handle;
  bool open = false;  // no key needed
};

// Routes requests; also checks host and key, answers preflights, unknown paths and wrong methods, and adds CORS headers
// to what a route answers.
class Router {
 public:
  // metrics, if there are any, get to know of every request.
  Router(const ServerConfig& config, std::vector<Route> routes, HttpMetrics* metrics = nullptr);
  void operator()(std::shared_ptr<HttpExchange> exchange) const;
  const std::vector<Route>& routes() const { return routes_; }

 private:
  bool origin_allowed(std::string_view origin) const;
  void route(const std::shared_ptr<HttpExchange>& exchange) const;
  HttpHeaders extra_headers(const HttpRequest& request) const;
  HttpHeaders cors_headers(const HttpRequest& request) const;
  HttpResponse preflight(const HttpRequest& request) const;

  ServerConfig config_;
  HostCheck hosts_;
  KeyCheck keys_;
  std::vector<Route> routes_;
  std::string id_prefix_;  // ids of requests that bring none: this and a number
  mutable std::atomic<uint64_t> next_id_{0};
  HttpMetrics* metrics_;
};

std::vector<Route> api_routes(Api& api);

}  // namespace quire
