#include "server/server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/memory_reserve.h"
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

  // From now on the first signal is kept for wait().
  void expect() {
    const std::lock_guard lock(mutex_);
    state_ = State::kWaiting;
  }
  // After expect(): blocks until the first signal and returns it.
  int wait() {
    std::unique_lock lock(mutex_);
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

// Each connection takes a descriptor, and the soft limit is often 1024: it is raised to the hard one. Where that is too
// low as well, fewer connections are taken, so that the others hear so instead of waiting to be accepted.
void fit_connections_to_descriptors(ServerConfig& config) {
  constexpr int64_t kOthers = 64;  // model files, threads' wake-ups, log
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = raised.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  if (limit.rlim_cur == RLIM_INFINITY || std::cmp_greater_equal(limit.rlim_cur, config.max_connections + kOthers))
    return;
  const int64_t left = std::max<int64_t>(static_cast<int64_t>(limit.rlim_cur) - kOthers, 1);
  log_warning(fmt::format("--max-connections {}: only {}, since this process may open {} files (ulimit -n)",
                          config.max_connections, left, limit.rlim_cur));
  config.max_connections = static_cast<int32_t>(left);
}

// Tells a service manager that waits for it (systemd, Type=notify) how far the server is; nothing without one.
void notify_service_manager(std::string_view state) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = path == nullptr ? 0 : std::strlen(path);
  if (length == 0 || length >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  if (::sendto(socket, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size) < 0)
    log_warning(fmt::format("NOTIFY_SOCKET {}: {}", path, std::strerror(errno)));
  ::close(socket);
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

int run_server(const EngineConfig& engine_config, ServerConfig config) {
  return run_server(engine_config, std::move(config),
                    [](const EngineConfig& c) { return std::make_unique<Engine>(c); });
}

int run_server(const EngineConfig& engine_config, ServerConfig config, const EngineMaker& make_engine) {
  check_config(config);
  fit_connections_to_descriptors(config);
  StopSignals signals;  // before any thread is made
  constexpr size_t kReserve = 1 << 20;
  MemoryReserve reserve(kReserve);
  std::unique_ptr<Router> router;
  std::unique_ptr<HttpServer> http;
  try {
    // Bound before the model is loaded: a port in use is known at once.
    http = std::make_unique<HttpServer>(config, [&router, &reserve](std::shared_ptr<HttpExchange> exchange) {
      reserve.refill();
      (*router)(std::move(exchange));
    });
  } catch (const Error& error) {
    log_error(error.what());
    return 1;
  }
  const std::unique_ptr<Engine> made = make_engine(engine_config);
  Engine& engine = *made;
  Api api(engine, config);
  router = std::make_unique<Router>(config, api_routes(api), &api.http_metrics);
  log_info(fmt::format("Starting quire server on {}", http->address()));
  log_info("Available routes are:");
  for (const Route& route : router->routes()) {
    std::string methods;
    for (const std::string& method : route.methods) methods += (methods.empty() ? "" : ", ") + method;
    log_info(fmt::format("Route: {}, Methods: {}", route.path, methods));
  }
  signals.expect();  // whoever sees the server answer may stop it
  try {
    http->start();
  } catch (const Error& error) {
    log_error(error.what());
    return 1;
  }
  log_info("Application startup complete.");
  notify_service_manager("READY=1");

  const int signal = signals.wait();
  log_info(fmt::format("{}: shutting down, running requests get {} s (again = at once)",
                       signal == SIGINT ? "SIGINT" : "SIGTERM", config.shutdown_timeout));
  notify_service_manager("STOPPING=1");
  api.draining = true;
  engine.shutdown(std::chrono::milliseconds(static_cast<int64_t>(config.shutdown_timeout * 1000)));
  http->stop(std::chrono::seconds(1));
  http.reset();
  log_info("Application shutdown complete.");
  return 0;
}

}  // namespace quire
