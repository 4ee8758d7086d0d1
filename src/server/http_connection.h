#pragma once
// One client connection: reads requests, hands each to the handler, writes the answer. Everything of a connection runs
// on the one thread of its io_context, so nothing here is locked. Reading never stops while a request is served: that
// is how a client that goes away is noticed at once.
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "server/config.h"
#include "server/http_head.h"
#include "server/http_stream.h"
#include "server/http_types.h"
#include "server/wake_list.h"

namespace quire {

class HttpConnection;

// What the connections of a server share.
struct HttpServerState {
  ServerConfig config;
  HttpHandler handler;
  boost::asio::thread_pool workers{2};
  std::atomic<int> connections{0};
  std::atomic<int64_t> body_bytes{0};  // of all requests at work
};

// What one request adds to HttpServerState::body_bytes, until it is over, however it ends.
class BodyCount {
 public:
  explicit BodyCount(std::atomic<int64_t>& all) : all_(all) {}
  ~BodyCount() { all_ -= mine_; }
  BodyCount(const BodyCount&) = delete;
  BodyCount& operator=(const BodyCount&) = delete;
  // Returns the bytes of all.
  int64_t add(int64_t bytes) {
    mine_ += bytes;
    return all_.fetch_add(bytes) + bytes;
  }

 private:
  std::atomic<int64_t>& all_;
  int64_t mine_ = 0;
};

// One io_context with its thread; the set is touched by that thread only. (The set is first, so that it outlives the
// connections that die with the context.)
struct HttpLoop {
  std::unordered_set<HttpConnection*> connections;
  boost::asio::io_context context{1};
  std::shared_ptr<WakeList> wakes = std::make_shared<WakeList>();
  WakeListRunner wake_runner{context, wakes};
};

// One of the connections that a server may have, from being accepted on.
class ConnectionSlot {
 public:
  explicit ConnectionSlot(std::shared_ptr<HttpServerState> state) : state_(std::move(state)) { ++state_->connections; }
  ~ConnectionSlot() {
    if (state_ != nullptr) --state_->connections;
  }
  ConnectionSlot(ConnectionSlot&&) noexcept = default;
  ConnectionSlot& operator=(ConnectionSlot&&) = delete;

  const std::shared_ptr<HttpServerState>& state() const { return state_; }

 private:
  std::shared_ptr<HttpServerState> state_;
};

// Bytes that have arrived and were not used yet. One reader fills it while one parser takes from the front.
class InputBuffer {
 public:
  std::string_view view() const { return {data_.data() + begin_, end_ - begin_}; }
  size_t size() const { return end_ - begin_; }
  void consume(size_t bytes) { begin_ += bytes; }
  // Room for `bytes` more at the back; valid until the next prepare.
  char* prepare(size_t bytes);
  void commit(size_t bytes) { end_ += bytes; }

 private:
  std::vector<char> data_;
  size_t begin_ = 0, end_ = 0;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(ConnectionSlot slot, HttpLoop& loop, HttpSocket socket, const TlsSettings& tls, std::string peer);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void start();
  void drain();  // closes now if idle, else after the answer at hand
  void abort();  // closes now

 private:
  class Exchange;
  using Clock = std::chrono::steady_clock;
  enum class ReadResult { kRequest, kFault, kClosed };

  boost::asio::awaitable<void> run();
  boost::asio::awaitable<void> serve_requests();
  boost::asio::awaitable<bool> handshake();
  boost::asio::awaitable<ReadResult> read_head();
  boost::asio::awaitable<ReadResult> read_body(BodyCount& count);
  boost::asio::awaitable<void> serve();
  boost::asio::awaitable<void> flush();
  boost::asio::awaitable<void> linger();
  boost::asio::awaitable<void> wait_until(Clock::time_point deadline);

  void start_read();
  void start_write();
  void notify();
  void release_buffers();
  void on_input_end(bool broken);
  template <typename Work>
  void or_abort(Work work) noexcept;  // for handlers: what can't go on is closed
  void dispatch();

  ReadResult fault(int status, const char* reason);
  void append_head(const HttpResponse& response, bool with_length);
  void log_access(int status) const;
  size_t unwritten() const { return out_.size() + writing_.size() - written_; }

  // The answer at hand, called through the exchange.
  void answer(const HttpResponse& response);
  void begin_stream(const HttpResponse& head);
  void write_stream(std::string_view bytes);
  void end_stream();
  void fire_disconnect();

  ConnectionSlot slot_;
  const std::shared_ptr<HttpServerState>& state_ = slot_.state();
  HttpLoop& loop_;
  HttpStream stream_;
  std::string peer_;
  boost::asio::steady_timer wake_;

  InputBuffer input_;
  bool reading_ = false, input_end_ = false, broken_ = false, draining_ = false, idle_ = true;
  std::string out_, writing_;
  size_t written_ = 0;
  bool write_in_flight_ = false;
  bool tls_step_done_ = false;  // of a handshake or a shutdown
  Clock::time_point last_progress_, request_begin_;

  HttpHead head_;
  std::string body_;
  bool body_in_progress_ = false;
  int fault_status_ = 0;
  const char* fault_reason_ = "";

  // State of the answer at hand.
  uint64_t serial_ = 0;  // number of the request
  bool answer_begun_ = false, answer_done_ = true, streaming_ = false, keep_alive_ = true, disconnect_fired_ = false;
  int status_ = 0;
  std::function<void()> disconnect_;
};

}  // namespace quire
