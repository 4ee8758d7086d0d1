#include "server/server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "engine/engine.h"
#include "server/api.h"
#include "server/app.h"
#include "server/http_server.h"
#include "server/json_body.h"

namespace quire {
namespace {

// SIGTERM and SIGINT are blocked in every thread and taken by one that waits for them: no handler, no half-safe calls.
// While nothing waits for the first one, and from the second one on, they end the process.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, &previous_);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN);  // the terminal goes, the server stays
    waiter_ = std::thread([this] { take_signals(); });
  }
  ~StopSignals() {
    {
      const std::lock_guard lock(mutex_);
      state_ = State::kOver;
    }
    pthread_kill(waiter_.native_handle(), SIGINT);  // only ends its sigwait: the signal is blocked
    waiter_.join();
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Blocks until the first signal and returns it.
  int wait() {
    std::unique_lock lock(mutex_);
    state_ = State::kWaiting;
    came_.wait(lock, [this] { return signal_ != 0; });
    return signal_;
  }

 private:
  enum class State { kStarting, kWaiting, kStopping, kOver };

  void take_signals() {
    while (true) {
      int number = 0;
      sigwait(&set_, &number);
      const std::lock_guard lock(mutex_);
      if (state_ == State::kOver) return;
      if (state_ != State::kWaiting) std::_Exit(128 + number);
      state_ = State::kStopping;
      signal_ = number;
      came_.notify_all();
    }
  }

  sigset_t set_{}, previous_{};
  std::mutex mutex_;
  std::condition_variable came_;
  State state_ = State::kStarting;
  int signal_ = 0;
  std::thread waiter_;
};

// Each connection takes a descriptor; the soft limit is often 1024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void check_config(const ServerConfig& config) {
  if (config.default_chat_template_kwargs.empty()) return;
  try {
    parse_json_object(config.default_chat_template_kwargs);
  } catch (const Error& error) {
    throw invalid_argument(fmt::format("--default-chat-template-kwargs: {}", error.what()),
                           "--default-chat-template-kwargs");
  }
}

}  // namespace

int run_server(const EngineConfig& engine_config, const ServerConfig& config) {
  check_config(config);
  raise_descriptor_limit();
  StopSignals signals;  // before any thread is made
  std::unique_ptr<Router> router;
  std::unique_ptr<HttpServer> http;
  try {
    // Bound before the model is loaded: a port in use is known at once.
    http = std::make_unique<HttpServer>(
        config, [&router](std::shared_ptr<HttpExchange> exchange) { (*router)(std::move(exchange)); });
  } catch (const Error& error) {
    log_error(error.what());
    return 1;
  }
  Engine engine(engine_config);
  Api api(engine, config);
  router = std::make_unique<Router>(config, api_routes(api));
  log_info(fmt::format("Starting quire server on {}", http->address()));
  log_info("Available routes are:");
  for (const Route& route : router->routes()) {
    std::string methods;
    for (const std::string& method : route.methods) methods += (methods.empty() ? "" : ", ") + method;
    log_info(fmt::format("Route: {}, Methods: {}", route.path, methods));
  }
  try {
    http->start();
  } catch (const Error& error) {
    log_error(error.what());
    return 1;
  }
  log_info("Application startup complete.");

  const int signal = signals.wait();
  log_info(fmt::format("{}: shutting down, running requests get {} s (again = at once)",
                       signal == SIGINT ? "SIGINT" : "SIGTERM", config.shutdown_timeout));
  api.draining = true;
  engine.shutdown(std::chrono::milliseconds(static_cast<int64_t>(config.shutdown_timeout * 1000)));
  http->stop(std::chrono::seconds(1));
  http.reset();
  log_info("Application shutdown complete.");
  return 0;
}

}  // namespace quire
