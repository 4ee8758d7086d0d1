#include "server/http_server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "server/http_connection.h"
#include "server/http_tls.h"
#include "server/insist.h"
#include "server/log_failure.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Local = asio::local::stream_protocol;

constexpr std::string_view kBusy =
    "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n";

Error cannot_listen(const std::string& where, const std::string& why) {
  return Error(ErrorKind::kUnavailable, fmt::format("cannot listen on {}: {}", where, why));
}

std::string peer_name(const tcp::socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return "?";
  const bool v6 = endpoint.address().is_v6();
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", endpoint.address().to_string(), v6 ? "]" : "", endpoint.port());
}
std::string peer_name(const Local::socket&) { return "unix"; }

void set_options(tcp::socket& socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
}
void set_options(Local::socket&) {}

// Tells a client that there is no room. What it has sent already is read: unread bytes would turn the close into a
// reset, which can take the answer with it.
void refuse(int socket) {
  if (::send(socket, kBusy.data(), kBusy.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return;
  ::shutdown(socket, SHUT_WR);
  char ignored[4096];
  [[maybe_unused]] const auto read = ::recv(socket, ignored, sizeof ignored, MSG_DONTWAIT);
}

// A socket file that nobody listens on is left over from a process that was killed; one that answers is in use.
void remove_stale_socket(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  asio::io_context context;
  Local::socket probe(context);
  error_code error;
  probe.connect(Local::endpoint(path), error);
  if (error == asio::error::connection_refused) unlink(path.c_str());
}

}  // namespace

struct HttpServer::Impl {
  std::shared_ptr<HttpServerState> state = std::make_shared<HttpServerState>();
  std::vector<std::unique_ptr<HttpLoop>> loops;
  std::vector<std::thread> threads;
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards;
  std::optional<TlsFiles> tls;
  std::optional<tcp::acceptor> tcp_acceptor;
  std::optional<Local::acceptor> local_acceptor;
  std::string address;
  uint16_t port = 0;
  bool stopped = false;
  size_t next_loop = 0;
  std::optional<asio::steady_timer> pause;
  bool warned = false;

  void bind_tcp();
  void bind_local();
  template <typename Acceptor>
  void listen(Acceptor& acceptor);
  template <typename Acceptor>
  void accept_next(Acceptor& acceptor);
  template <typename Acceptor>
  void accept_later(Acceptor& acceptor, error_code reason);
  template <typename Socket>
  void take_client(HttpLoop& loop, Socket socket);
  void close_acceptors();
};

void HttpServer::Impl::bind_tcp() {
  const ServerConfig& config = state->config;
  const std::string host = config.host.empty() ? "0.0.0.0" : config.host;
  const std::string where = fmt::format("{}:{}", host, config.port);
  asio::io_context& context = loops.front()->context;
  error_code error;
  tcp::endpoint endpoint;
  if (const auto parsed = asio::ip::make_address(host, error); !error) {
    endpoint = {parsed, config.port};
  } else {
    tcp::resolver resolver(context);
    const auto found = resolver.resolve(host, std::to_string(config.port), tcp::resolver::passive, error);
    if (error || found.empty()) throw cannot_listen(where, "no such host");
    endpoint = found.begin()->endpoint();
  }
  tcp::acceptor& acceptor = tcp_acceptor.emplace(context);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (error) throw cannot_listen(where, error.message());
  port = acceptor.local_endpoint().port();
  address =
      fmt::format("{}://{}:{}", tls ? "https" : "http", endpoint.address().is_v6() ? "[" + host + "]" : host, port);
}

void HttpServer::Impl::bind_local() {
  const std::string& path = state->config.uds;
  remove_stale_socket(path);
  Local::acceptor& acceptor = local_acceptor.emplace(loops.front()->context);
  error_code error;
  try {
    acceptor.open(Local(), error);
    if (!error) acceptor.bind(Local::endpoint(path), error);
  } catch (const boost::system::system_error& failed) {  // a path that is too long
    throw cannot_listen(path, failed.code().message());
  }
  if (error) throw cannot_listen(path, error.message());
  address = "unix:" + path;
}

template <typename Acceptor>
void HttpServer::Impl::listen(Acceptor& acceptor) {
  error_code error;
  acceptor.listen(4096, error);
  if (error) throw cannot_listen(address, error.message());
  pause.emplace(loops.front()->context);
  asio::post(loops.front()->context, [this, &acceptor] { accept_next(acceptor); });
}

// Callbacks rather than a coroutine: without memory to wait the latter would end, and with it the server.
template <typename Acceptor>
void HttpServer::Impl::accept_next(Acceptor& acceptor) {
  using Socket = typename Acceptor::protocol_type::socket;
  HttpLoop& loop = *loops[next_loop++ % loops.size()];
  insist([&] {
    acceptor.async_accept(loop.context, [this, &acceptor, &loop](error_code error, Socket socket) {
      if (error == asio::error::operation_aborted || !acceptor.is_open()) return;
      if (error && error != asio::error::connection_aborted) return accept_later(acceptor, error);
      warned = false;
      try {
        if (!error) take_client(loop, std::move(socket));
      } catch (const std::exception& failed) {  // no memory for this one
        log_failure("accept", failed);
      }
      accept_next(acceptor);
    });
  });
}

// Out of descriptors or memory: the waiting client would make this loop spin.
template <typename Acceptor>
void HttpServer::Impl::accept_later(Acceptor& acceptor, error_code reason) {
  if (!std::exchange(warned, true)) log_failure("accept", boost::system::system_error(reason));
  insist([&] {
    pause->expires_after(std::chrono::milliseconds(100));
    pause->async_wait([this, &acceptor](error_code) {
      if (acceptor.is_open()) accept_next(acceptor);
    });
  });
}

template <typename Socket>
void HttpServer::Impl::take_client(HttpLoop& loop, Socket socket) {
  if (state->connections.load() >= state->config.max_connections) {
    if (!tls) refuse(socket.native_handle());
    return;
  }
  set_options(socket);
  std::string peer = peer_name(socket);
  asio::post(loop.context, [slot = ConnectionSlot(state), &loop, socket = std::move(socket), peer = std::move(peer),
                            settings = tls ? tls->settings() : TlsSettings()]() mutable {
    std::make_shared<HttpConnection>(std::move(slot), loop, HttpSocket(std::move(socket)), settings, std::move(peer))
        ->start();
  });
}

void HttpServer::Impl::close_acceptors() {
  error_code ignored;
  if (tcp_acceptor) tcp_acceptor->close(ignored);
  if (local_acceptor) local_acceptor->close(ignored);
}

HttpServer::HttpServer(ServerConfig config, HttpHandler handler) : impl_(std::make_unique<Impl>()) {
  impl_->state->config = std::move(config);
  impl_->state->handler = std::move(handler);
  for (int i = 0; i < std::max(impl_->state->config.io_threads, 1); ++i)
    impl_->loops.push_back(std::make_unique<HttpLoop>());
  if (!impl_->state->config.ssl_certfile.empty()) impl_->tls.emplace(impl_->state->config);
  if (impl_->state->config.uds.empty()) {
    impl_->bind_tcp();
  } else {
    impl_->bind_local();
  }
}

HttpServer::~HttpServer() {
  stop(std::chrono::milliseconds(0));
  if (!impl_->state->config.uds.empty()) unlink(impl_->state->config.uds.c_str());
}

void HttpServer::start() {
  if (impl_->tcp_acceptor) impl_->listen(*impl_->tcp_acceptor);
  if (impl_->local_acceptor) impl_->listen(*impl_->local_acceptor);
  for (const auto& loop : impl_->loops) {
    impl_->guards.push_back(asio::make_work_guard(loop->context));
    loop->wake_runner.start();
    impl_->threads.emplace_back([&context = loop->context] {
      while (true) {
        try {
          context.run();
          return;
        } catch (const std::exception& error) {  // one connection's trouble must not end the others
          log_failure("http", error);
        }
      }
    });
  }
}

void HttpServer::stop(std::chrono::milliseconds grace) {
  if (std::exchange(impl_->stopped, true)) return;
  const auto each_connection = [this](void (HttpConnection::*call)()) {
    for (const auto& loop : impl_->loops) {
      asio::post(loop->context, [&loop = *loop, call] {
        // A copy that keeps them alive: the call may end a connection.
        std::vector<std::shared_ptr<HttpConnection>> all;
        for (HttpConnection* connection : loop.connections) {
          if (auto alive = connection->weak_from_this().lock()) all.push_back(std::move(alive));
        }
        for (const auto& connection : all) ((*connection).*call)();
      });
    }
  };
  const auto wait_for_none = [this](std::chrono::milliseconds most) {
    const auto end = std::chrono::steady_clock::now() + most;
    while (impl_->state->connections.load() > 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  if (!impl_->threads.empty()) {
    asio::post(impl_->loops.front()->context, [this] { impl_->close_acceptors(); });
    each_connection(&HttpConnection::drain);
    wait_for_none(grace);
    each_connection(&HttpConnection::abort);
    impl_->state->workers.join();
    wait_for_none(std::chrono::milliseconds(500));
  }
  impl_->guards.clear();
  for (const auto& loop : impl_->loops) loop->context.stop();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

uint16_t HttpServer::port() const { return impl_->port; }
std::string HttpServer::address() const { return impl_->address; }

}  // namespace quire
