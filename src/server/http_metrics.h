#pragma once
// Counts and times of HTTP requests, with the names and labels of the instrumentation that vLLM uses, and GET /metrics,
// which shows them with those of the engine and of the process.
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/prometheus.h"
#include "server/http_types.h"

namespace quire {

struct Api;
struct Route;

class HttpMetrics {
 public:
  // From then on requests for these routes are told apart; those for any other path are "none", as all are before.
  void set_routes(const std::vector<Route>& routes, std::string root_path);

  // The exchange, or one around it that tells this object of its end. Probes and /metrics itself are not counted.
  std::shared_ptr<HttpExchange> measure(std::shared_ptr<HttpExchange> exchange);
  // A request that was answered with this status. Durations in seconds; sizes in bytes of bodies.
  struct Record {
    std::string_view path, method;
    int status = 0;
    double seconds = 0;
    uint64_t request_bytes = 0, response_bytes = 0;
  };
  void add(const Record& record);

  void render(PrometheusText& out) const;

 private:
  static constexpr size_t kMethods = 8, kClasses = 5;  // of status: 1xx to 5xx
  struct Sizes {
    std::atomic<int64_t> count{0}, bytes{0};
    void add(uint64_t size) {
      ++count;
      bytes += static_cast<int64_t>(size);
    }
  };
  struct Handler {
    explicit Handler(std::string name);
    std::string path;
    std::array<std::array<std::atomic<int64_t>, kClasses>, kMethods> requests{};
    std::deque<Histogram> duration;  // by method
    Sizes request, response;
  };
  Handler& handler_of(std::string_view path);

  std::string root_path_;
  std::deque<Handler> handlers_;  // written by set_routes() only
  Handler other_{"none"};
  Histogram duration_{{.01, .025, .05, .075, .1, .25, .5, .75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60}};
};

// Of this process, as Prometheus' clients name them.
void render_process_metrics(PrometheusText& out);

void append_metrics_routes(Api& api, std::vector<Route>& routes);

}  // namespace quire
