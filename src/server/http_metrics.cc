#include "server/http_metrics.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/process_stats.h"
#include "engine/stats.h"
#include "server/api.h"
#include "server/app.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

// The last one stands for all others.
constexpr std::array<std::string_view, 8> kMethodNames = {"GET",   "POST",   "HEAD",    "PUT",
                                                          "PATCH", "DELETE", "OPTIONS", "other"};
constexpr std::array<std::string_view, 5> kClassNames = {"1xx", "2xx", "3xx", "4xx", "5xx"};
constexpr std::array<std::string_view, 6> kUncounted = {"/metrics", "/health",  "/load",
                                                        "/ping",    "/version", "/server_info"};

size_t method_index(std::string_view method) {
  const auto* const at = std::find(kMethodNames.begin(), std::prev(kMethodNames.end()), method);
  return static_cast<size_t>(at - kMethodNames.begin());
}

// Passes everything on, and takes down how the answer went when it ends or the last user of the exchange goes.
class MeasuredExchange final : public HttpExchange {
 public:
  MeasuredExchange(std::shared_ptr<HttpExchange> inner, HttpMetrics& metrics)
      : inner_(std::move(inner)), metrics_(metrics), request_bytes_(inner_->request().body.size()) {}
  ~MeasuredExchange() override {
    constexpr int kClientClosedRequest = 499, kDropped = 500;
    end(status_ != 0 ? status_ : *gone_ ? kClientClosedRequest : kDropped);
  }
  MeasuredExchange(const MeasuredExchange&) = delete;
  MeasuredExchange& operator=(const MeasuredExchange&) = delete;

  const HttpRequest& request() const override { return inner_->request(); }
  std::string take_body() override { return inner_->take_body(); }
  void respond(HttpResponse response) override {
    response_bytes_ = response.body.size();
    end(response.status);
    inner_->respond(std::move(response));
  }
  void begin_stream(HttpResponse head) override {
    status_ = head.status;
    inner_->begin_stream(std::move(head));
  }
  void write(std::string_view bytes) override {
    response_bytes_ += bytes.size();
    inner_->write(bytes);
  }
  void end_stream() override {
    end(status_);
    inner_->end_stream();
  }
  void on_disconnect(std::function<void()> callback) override {
    inner_->on_disconnect([gone = gone_, callback = std::move(callback)] {
      *gone = true;
      callback();
    });
  }
  void post(std::function<void()> work) override { inner_->post(std::move(work)); }
  std::function<void()> make_waker(std::function<void()> work) override { return inner_->make_waker(std::move(work)); }

 private:
  void end(int status) {
    if (ended_.exchange(true)) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    metrics_.add({request().path, request().method, status, seconds, request_bytes_, response_bytes_});
  }

  std::shared_ptr<HttpExchange> inner_;
  HttpMetrics& metrics_;
  Clock::time_point begin_ = Clock::now();
  uint64_t request_bytes_, response_bytes_ = 0;  // the answer is written on one thread
  int status_ = 0;
  // The client went away. Shared with the callback, which must not hold this object.
  std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> ended_{false};
};

}  // namespace

HttpMetrics::Handler::Handler(std::string name) : path(std::move(name)) {
  for (size_t i = 0; i < kMethods; ++i) duration.emplace_back(std::vector<double>{.1, .5, 1});
}

void HttpMetrics::set_routes(const std::vector<Route>& routes, std::string root_path) {
  static_assert(kMethodNames.size() == kMethods && kClassNames.size() == kClasses);
  root_path_ = std::move(root_path);
  for (const Route& route : routes) {
    if (std::ranges::find(kUncounted, route.path) == kUncounted.end()) handlers_.emplace_back(route.path);
  }
}

HttpMetrics::Handler& HttpMetrics::handler_of(std::string_view path) {
  const auto at = std::ranges::find(handlers_, path, &Handler::path);
  return at == handlers_.end() ? other_ : *at;
}

std::shared_ptr<HttpExchange> HttpMetrics::measure(std::shared_ptr<HttpExchange> exchange) {
  const std::string_view path = path_below(root_path_, exchange->request().path);
  if (std::ranges::find(kUncounted, path) != kUncounted.end()) return exchange;
  return std::make_shared<MeasuredExchange>(std::move(exchange), *this);
}

void HttpMetrics::add(const Record& record) {
  Handler& handler = handler_of(path_below(root_path_, record.path));
  const size_t method = method_index(record.method);
  const size_t status_class = static_cast<size_t>(std::clamp(record.status / 100, 1, 5)) - 1;
  ++handler.requests[method][status_class];
  handler.duration[method].observe(record.seconds);
  handler.request.add(record.request_bytes);
  handler.response.add(record.response_bytes);
  duration_.observe(record.seconds);
}

void HttpMetrics::render(PrometheusText& out) const {
  std::vector<const Handler*> used;
  for (const Handler& handler : handlers_) {
    if (handler.request.count > 0) used.push_back(&handler);
  }
  if (other_.request.count > 0) used.push_back(&other_);

  std::string_view name = "http_requests_total";
  out.head(name, "counter", "HTTP requests by method, class of status and handler.");
  for (const Handler* handler : used) {
    for (size_t method = 0; method < kMethods; ++method) {
      for (size_t status = 0; status < kClasses; ++status) {
        const int64_t count = handler->requests[method][status].load();
        if (count == 0) continue;
        out.sample(name,
                   prometheus_labels(
                       {{"handler", handler->path}, {"method", kMethodNames[method]}, {"status", kClassNames[status]}}),
                   count);
      }
    }
  }
  for (const auto& [metric, sizes, help] :
       {std::tuple("http_request_size_bytes", &Handler::request, "Bytes of requests' bodies by handler."),
        std::tuple("http_response_size_bytes", &Handler::response, "Bytes of answers' bodies by handler.")}) {
    out.head(metric, "summary", help);
    for (const Handler* handler : used) {
      const std::string labels = prometheus_labels({{"handler", handler->path}});
      out.sample(std::string(metric) + "_count", labels, (handler->*sizes).count.load());
      out.sample(std::string(metric) + "_sum", labels, (handler->*sizes).bytes.load());
    }
  }
  name = "http_request_duration_highr_seconds";
  out.head(name, "histogram", "Time of a request, with many buckets.");
  out.histogram(name, "", duration_);
  name = "http_request_duration_seconds";
  out.head(name, "histogram", "Time of a request by method and handler.");
  for (const Handler* handler : used) {
    for (size_t method = 0; method < kMethods; ++method) {
      if (handler->duration[method].count() == 0) continue;
      out.histogram(name, prometheus_labels({{"handler", handler->path}, {"method", kMethodNames[method]}}),
                    handler->duration[method]);
    }
  }
}

void render_process_metrics(PrometheusText& out) {
  const std::optional<ProcessStats> stats = read_process_stats();
  if (!stats) return;
  const auto show = [&](const char* name, const char* type, const char* help, auto value) {
    out.head(name, type, help);
    out.sample(name, "", value);
  };
  show("process_virtual_memory_bytes", "gauge", "Virtual memory in bytes.", stats->virtual_bytes);
  show("process_resident_memory_bytes", "gauge", "Resident memory in bytes.", stats->resident_bytes);
  show("process_start_time_seconds", "gauge", "When the process started, in Unix time.", stats->start_time);
  show("process_cpu_seconds_total", "counter", "Time of all processors, in user and in kernel mode.",
       stats->cpu_seconds);
  show("process_open_fds", "gauge", "Open file descriptors.", stats->open_files);
  if (stats->max_files >= 0) show("process_max_fds", "gauge", "Limit of open file descriptors.", stats->max_files);
}

void append_metrics_routes(Api& api, std::vector<Route>& routes) {
  routes.push_back({{"GET"},
                    "/metrics",
                    [&api](const std::shared_ptr<HttpExchange>& exchange) {
                      HttpResponse response;
                      response.content_type = "text/plain; version=0.0.4; charset=utf-8";
                      PrometheusText rest;
                      api.http_metrics.render(rest);
                      render_process_metrics(rest);
                      response.body = api.engine.metrics().render() + rest.take();
                      exchange->respond(std::move(response));
                    },
                    api.config.metrics_without_api_key});
}

}  // namespace quire
