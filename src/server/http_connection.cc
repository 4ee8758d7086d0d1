#include "server/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "server/json_errors.h"
#include "server/log_failure.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kIdleRead = 4 << 10;
constexpr size_t kBodyRead = 64 << 10;
constexpr size_t kLingerBytes = 256 << 10;
constexpr double kSlowestBody = 1 << 10;  // bytes a second that a body must keep up with, once its time-out is over
constexpr int64_t kBodiesAtOnce = 16;     // all bodies at work may take this many times the largest one

std::chrono::steady_clock::duration seconds(double value) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(value));
}

void append_date(std::string& out) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  fmt::format_to(std::back_inserter(out), "date: {}, {:02} {} {} {:02}:{:02}:{:02} GMT\r\n", kDays[parts.tm_wday],
                 parts.tm_mday, kMonths[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

// A header value as it may go on the wire: no control characters, whatever a handler put in.
void append_header(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  for (const char c : value) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out += c;
  }
  out += "\r\n";
}

}  // namespace

char* InputBuffer::prepare(size_t bytes) {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    // An idle connection keeps no large buffer. (= {} would keep it.)
    if (data_.size() > kIdleRead && bytes <= kIdleRead) data_ = std::vector<char>();
  }
  if (data_.size() - end_ < bytes && begin_ > 0) {
    std::copy(data_.begin() + static_cast<std::ptrdiff_t>(begin_), data_.begin() + static_cast<std::ptrdiff_t>(end_),
              data_.begin());
    end_ -= begin_;
    begin_ = 0;
  }
  if (data_.size() - end_ < bytes) data_.resize(end_ + bytes);
  return data_.data() + end_;
}

// The handler's end of a request. Its calls hop to the connection's thread; those for an answer that is over are
// dropped by number.
class HttpConnection::Exchange : public HttpExchange {
 public:
  Exchange(std::shared_ptr<HttpConnection> connection, HttpRequest request)
      : wakes_(connection->loop_.wakes),
        connection_(std::move(connection)),
        request_(std::move(request)),
        serial_(connection_->serial_) {
    give_up_ = std::make_shared<WakeList::Entry>([held = connection_, serial = serial_]() mutable {
      const auto last = std::move(held);  // called once: a reference that may be the last ends on this thread
      if (last->serial_ != serial || last->answer_done_ || last->disconnect_fired_) return;
      last->or_abort([&] {
        if (last->answer_begun_) throw std::runtime_error("an answer was dropped");
        last->answer(error_response(500, "InternalServerError", "the request was dropped"));
      });
    });
  }

  // Dropped without an answer: the client gets 500 and not a hang. Any thread may drop it, but a connection must end on
  // its own: this reference goes before give_up_, which has another one, can be called.
  ~Exchange() override {
    const auto executor = connection_->stream_.get_executor();
    connection_.reset();
    try {  // after what it has posted before
      asio::post(executor, [entry = give_up_] { entry->work(); });
    } catch (const std::exception&) {
      wakes_->wake(give_up_);
    }
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const HttpRequest& request() const override { return request_; }
  std::string take_body() override { return std::move(request_.body); }

  void respond(HttpResponse response) override {
    on_thread([response = std::move(response)](HttpConnection& c) {
      if (!c.answer_begun_) c.answer(response);
    });
  }
  void begin_stream(HttpResponse head) override {
    on_thread([head = std::move(head)](HttpConnection& c) {
      if (!c.answer_begun_) c.begin_stream(head);
    });
  }
  void write(std::string_view bytes) override {
    if (connection_->loop_.context.get_executor().running_in_this_thread()) {
      if (current()) connection_->write_stream(bytes);
    } else {
      on_thread([copy = std::string(bytes)](HttpConnection& c) { c.write_stream(copy); });
    }
  }
  void end_stream() override {
    on_thread([](HttpConnection& c) { c.end_stream(); });
  }
  void on_disconnect(std::function<void()> callback) override {
    auto work = [connection = connection_, serial = serial_, callback = std::move(callback)]() mutable {
      if (connection->serial_ != serial || connection->answer_done_) return;
      connection->disconnect_ = std::move(callback);
      if (connection->input_end_ || connection->broken_) connection->fire_disconnect();
    };
    asio::dispatch(connection_->stream_.get_executor(), std::move(work));
  }
  void post(std::function<void()> work) override { asio::post(connection_->stream_.get_executor(), std::move(work)); }
  std::function<void()> make_waker(std::function<void()> work) override {
    return [list = wakes_, entry = std::make_shared<WakeList::Entry>(std::move(work))] { list->wake(entry); };
  }

 private:
  bool current() const {
    return connection_->serial_ == serial_ && !connection_->answer_done_ && !connection_->broken_;
  }
  template <typename Work>
  void on_thread(Work work) {
    asio::dispatch(connection_->stream_.get_executor(),
                   [connection = connection_, serial = serial_, work = std::move(work)]() mutable {
                     if (connection->serial_ != serial || connection->answer_done_ || connection->broken_) return;
                     connection->or_abort([&] { work(*connection); });
                   });
  }

  std::shared_ptr<WakeList> wakes_;  // goes last: it may hold the connection
  std::shared_ptr<HttpConnection> connection_;
  HttpRequest request_;
  uint64_t serial_;
  std::shared_ptr<WakeList::Entry> give_up_;
};

HttpConnection::HttpConnection(ConnectionSlot slot, HttpLoop& loop, HttpSocket socket, const TlsSettings& tls,
                               std::string peer)
    : slot_(std::move(slot)),
      loop_(loop),
      stream_(std::move(socket), tls),
      peer_(std::move(peer)),
      wake_(stream_.get_executor()) {
  loop_.connections.insert(this);
}

HttpConnection::~HttpConnection() { loop_.connections.erase(this); }

void HttpConnection::start() {
  asio::co_spawn(
      stream_.get_executor(), [self = shared_from_this()] { return self->run(); }, asio::detached);
}

void HttpConnection::drain() {
  draining_ = true;
  if (idle_) {
    abort();
  } else {
    notify();
  }
}

void HttpConnection::abort() {
  broken_ = true;
  try {
    fire_disconnect();
  } catch (const std::exception& error) {  // whatever it could not cancel goes with the callback
    log_failure("http", error);
  }
  error_code ignored;
  stream_.socket().close(ignored);
  notify();
}

template <typename Work>
void HttpConnection::or_abort(Work work) noexcept {
  try {
    work();
  } catch (const std::exception& error) {
    log_failure("http", error);
    abort();
  }
}

void HttpConnection::notify() { wake_.cancel(); }

// Everything that is waited for is a condition on this object; each change calls notify(), and waiters look again.
asio::awaitable<void> HttpConnection::wait_until(Clock::time_point deadline) {
  wake_.expires_at(deadline);
  error_code ignored;
  co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

void HttpConnection::start_read() {
  const auto most =
      static_cast<size_t>(std::max<int64_t>(state_->config.h11_max_incomplete_event_size, 1024)) + kIdleRead;
  if (reading_ || input_end_ || broken_ || input_.size() >= most) return;
  const size_t bytes = body_in_progress_ ? kBodyRead : kIdleRead;
  char* const room = input_.prepare(bytes);
  stream_.read_some(asio::buffer(room, bytes), [self = shared_from_this()](error_code error, size_t count) {
    self->reading_ = false;
    self->or_abort([&] {
      if (error) return self->on_input_end(error != asio::error::eof);
      self->input_.commit(count);
      self->start_read();
      self->notify();
    });
  });
  reading_ = true;
}

void HttpConnection::on_input_end(bool broken) {
  input_end_ = true;
  broken_ = broken_ || broken;
  fire_disconnect();
  notify();
}

void HttpConnection::start_write() {
  if (write_in_flight_ || broken_) return;
  if (written_ == writing_.size()) {
    if (out_.empty()) return;
    writing_.clear();
    written_ = 0;
    std::swap(out_, writing_);
    if (out_.capacity() > kBodyRead) out_ = std::string();
    last_progress_ = Clock::now();
  }
  stream_.write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                     [self = shared_from_this()](error_code error, size_t count) {
                       self->write_in_flight_ = false;
                       self->written_ += count;
                       self->or_abort([&] {
                         if (error) {
                           self->broken_ = true;
                           self->fire_disconnect();
                         } else {
                           self->last_progress_ = Clock::now();
                           self->start_write();
                         }
                       });
                       if (self->broken_ || !self->write_in_flight_) self->notify();
                     });
  write_in_flight_ = true;  // not before: without memory to begin it no write is under way
}

void HttpConnection::fire_disconnect() {
  if (answer_done_ || !disconnect_) return;
  disconnect_fired_ = true;
  notify();  // serve() goes on to close
  const auto callback = std::exchange(disconnect_, nullptr);
  callback();
}

HttpConnection::ReadResult HttpConnection::fault(int status, const char* reason) {
  fault_status_ = status;
  fault_reason_ = reason;
  return ReadResult::kFault;
}

asio::awaitable<HttpConnection::ReadResult> HttpConnection::read_head() {
  const ServerConfig& config = state_->config;
  const auto most = static_cast<size_t>(std::max<int64_t>(config.h11_max_incomplete_event_size, 1024));
  Clock::time_point deadline = Clock::now() + seconds(config.keep_alive_timeout);
  bool begun = false;
  size_t searched = 0;
  head_ = {};
  while (true) {
    std::string_view view = input_.view();
    if (!begun) {
      while (view.starts_with("\r\n")) {  // empty lines before a request are skipped (RFC 9112 section 2.2)
        input_.consume(2);
        view.remove_prefix(2);
      }
      if (!view.empty() && view != "\r") {
        begun = true;
        idle_ = false;
        request_begin_ = Clock::now();
        deadline = Clock::now() + seconds(config.header_timeout);
      }
    }
    if (begun) {
      const size_t end = view.find("\r\n\r\n", searched);
      if (end != std::string_view::npos && end + 4 <= most) {
        head_ = parse_http_head(view.substr(0, end + 4), config);
        input_.consume(end + 4);
        start_read();
        if (head_.fault != 0) co_return fault(head_.fault, head_.reason);
        co_return ReadResult::kRequest;
      }
      if (end != std::string_view::npos || view.size() > most) {
        co_return fault(431, "request line and headers are longer than the limit");
      }
      searched = view.size() < 3 ? 0 : view.size() - 3;
    }
    if (broken_ || (draining_ && !begun)) co_return ReadResult::kClosed;
    if (input_end_) co_return begun ? fault(400, "connection closed within the headers") : ReadResult::kClosed;
    if (Clock::now() >= deadline) {
      if (begun) co_return fault(408, "headers did not arrive in time");
      if (stream_.secure()) co_await linger();
      co_return ReadResult::kClosed;
    }
    start_read();
    co_await wait_until(deadline);
  }
}

asio::awaitable<HttpConnection::ReadResult> HttpConnection::read_body(BodyCount& count) {
  const ServerConfig& config = state_->config;
  const auto most = static_cast<uint64_t>(std::max<int64_t>(config.max_body_size, 0));
  body_.clear();
  if (head_.content_length.value_or(0) > most) co_return fault(413, "request body is longer than the limit");
  if (!head_.chunked && head_.content_length.value_or(0) == 0) co_return ReadResult::kRequest;
  if (head_.expect_continue && input_.size() == 0) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    start_write();
  }
  body_in_progress_ = true;
  ChunkedDecoder chunks;
  const Clock::time_point begun = Clock::now();
  Clock::time_point deadline = begun + seconds(config.body_timeout);
  while (true) {
    std::string_view view = input_.view();
    if (!view.empty()) {
      const size_t before = view.size();
      const size_t body_before = body_.size();
      bool framed = true, done = false;
      if (head_.chunked) {
        framed = chunks.feed(view, body_);
        done = chunks.done();
      } else {
        const size_t take = std::min<uint64_t>(view.size(), *head_.content_length - body_.size());
        body_.append(view.substr(0, take));
        view.remove_prefix(take);
        done = body_.size() == *head_.content_length;
      }
      input_.consume(before - view.size());
      const int64_t all = count.add(static_cast<int64_t>(body_.size() - body_before));
      if (!framed) co_return fault(400, "bad chunk in the request body");
      if (body_.size() + chunks.pending() > most) co_return fault(413, "request body is longer than the limit");
      if (all > kBodiesAtOnce * std::max<int64_t>(config.max_body_size, 1)) {
        co_return fault(503, "too many large requests at once");
      }
      if (done) {
        body_in_progress_ = false;
        co_return ReadResult::kRequest;
      }
      deadline = std::min(Clock::now() + seconds(config.body_timeout),
                          begun + seconds(config.body_timeout + static_cast<double>(body_.size()) / kSlowestBody));
    }
    if (broken_) co_return ReadResult::kClosed;
    if (input_end_) co_return fault(400, "connection closed within the body");
    if (Clock::now() >= deadline) co_return fault(408, "the request body did not arrive in time");
    start_read();
    co_await wait_until(deadline);
  }
}

void HttpConnection::append_head(const HttpResponse& response, bool with_length) {
  fmt::format_to(std::back_inserter(out_), "HTTP/1.1 {} {}\r\n", response.status, status_phrase(response.status));
  append_date(out_);
  out_ += "server: quire\r\n";
  if (!response.content_type.empty()) append_header(out_, "content-type", response.content_type);
  for (const auto& [name, value] : response.headers) append_header(out_, name, value);
  if (with_length) {
    fmt::format_to(std::back_inserter(out_), "content-length: {}\r\n", response.body.size());
  } else if (head_.version_minor == 1) {
    out_ += "transfer-encoding: chunked\r\n";
  }
  if (!keep_alive_) {
    out_ += "connection: close\r\n";
  } else if (head_.version_minor == 0) {
    out_ += "connection: keep-alive\r\n";
  }
  out_ += "\r\n";
}

void HttpConnection::answer(const HttpResponse& response) {
  keep_alive_ = keep_alive_ && !draining_;
  append_head(response, true);
  if (head_.request.method != "HEAD") out_ += response.body;
  status_ = response.status;
  answer_begun_ = answer_done_ = true;
  disconnect_ = nullptr;
  start_write();
  notify();
}

void HttpConnection::begin_stream(const HttpResponse& head) {
  keep_alive_ = keep_alive_ && !draining_ && head_.version_minor == 1;
  append_head(head, false);
  status_ = head.status;
  answer_begun_ = streaming_ = true;
  start_write();
}

void HttpConnection::write_stream(std::string_view bytes) {
  if (!streaming_ || bytes.empty()) return;
  if (unwritten() > static_cast<size_t>(std::max<int64_t>(state_->config.max_write_buffer, 1))) {
    log_warning(fmt::format("{} reads too slowly: stream aborted with {} bytes unread", peer_, unwritten()));
    abort();
    return;
  }
  if (head_.version_minor == 1) {
    constexpr size_t kFraming = 32;
    out_.reserve(out_.size() + bytes.size() + kFraming);  // all of a chunk or nothing
    fmt::format_to(std::back_inserter(out_), "{:x}\r\n", bytes.size());
    out_ += bytes;
    out_ += "\r\n";
  } else {
    out_ += bytes;
  }
  start_write();
}

void HttpConnection::end_stream() {
  if (!streaming_) return;
  if (head_.version_minor == 1) out_ += "0\r\n\r\n";
  streaming_ = false;
  answer_done_ = true;
  disconnect_ = nullptr;
  start_write();
  notify();
}

void HttpConnection::dispatch() {
  ++serial_;
  answer_begun_ = answer_done_ = streaming_ = disconnect_fired_ = false;
  status_ = 0;
  keep_alive_ = head_.keep_alive;
  disconnect_ = nullptr;
  HttpRequest request = head_.request;  // head_ keeps its own for the log
  const bool has_body = !body_.empty();
  request.body = std::move(body_);
  request.peer = peer_;
  body_ = {};
  auto exchange = std::make_shared<Exchange>(shared_from_this(), std::move(request));
  auto call = [state = state_, exchange = std::move(exchange)]() mutable {
    try {
      try {
        state->handler(exchange);
      } catch (const Error& error) {
        exchange->respond(error_response(error));
      } catch (const std::bad_alloc&) {
        exchange->respond(error_response(503, "ServiceUnavailableError", "out of memory for this request"));
      } catch (const std::exception& error) {
        log_failure("request failed", error);
        exchange->respond(error_response(500, "InternalServerError", "internal error"));
      }
    } catch (const std::exception& error) {  // an exchange without an answer gives one itself
      log_failure("request failed", error);
    }
  };
  if (has_body) {
    asio::post(state_->workers, std::move(call));
  } else {
    call();
  }
}

asio::awaitable<void> HttpConnection::serve() {
  const auto silence = std::chrono::seconds(state_->config.sse_keep_alive_interval);
  const auto write_timeout = seconds(state_->config.write_timeout);
  Clock::time_point spoke = Clock::now();
  start_read();  // notices a client that goes away
  while (!broken_) {
    if (answer_done_ && unwritten() == 0) break;
    if (disconnect_fired_) break;
    Clock::time_point deadline = Clock::time_point::max();
    const Clock::time_point now = Clock::now();
    if (unwritten() > 0) {
      deadline = last_progress_ + write_timeout;
      if (now >= deadline) {
        log_warning(fmt::format("{} reads nothing: connection closed with {} bytes unread", peer_, unwritten()));
        abort();
        break;
      }
      spoke = last_progress_;
    } else if (streaming_ && silence.count() > 0) {
      spoke = std::max(spoke, last_progress_);
      if (now >= spoke + silence) {
        write_stream(": keep-alive\n\n");
        continue;
      }
      deadline = spoke + silence;
    }
    co_await wait_until(deadline);
  }
  answer_done_ = true;
  streaming_ = false;
  disconnect_ = nullptr;
}

asio::awaitable<void> HttpConnection::flush() {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(5);
  start_write();
  while (!broken_ && unwritten() > 0 && Clock::now() < deadline) co_await wait_until(deadline);
}

// Before closing with input unread, which would reset the connection and could take the answer with it; with TLS also
// to tell the client that nothing was cut off.
asio::awaitable<void> HttpConnection::linger() {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
  if (stream_.secure()) {
    tls_step_done_ = false;
    stream_.shut_down_tls([self = shared_from_this()](error_code) {
      self->tls_step_done_ = true;
      self->notify();
    });
    while (!broken_ && !tls_step_done_ && Clock::now() < deadline) {
      input_.consume(input_.size());
      co_await wait_until(deadline);
    }
    co_return;
  }
  error_code ignored;
  stream_.socket().shutdown(HttpSocket::shutdown_send, ignored);
  size_t discarded = 0;
  while (!broken_ && !input_end_ && discarded < kLingerBytes && Clock::now() < deadline) {
    discarded += input_.size();
    input_.consume(input_.size());
    start_read();
    co_await wait_until(deadline);
  }
}

asio::awaitable<bool> HttpConnection::handshake() {
  const Clock::time_point deadline = Clock::now() + seconds(state_->config.header_timeout);
  stream_.handshake([self = shared_from_this()](error_code error) {
    self->tls_step_done_ = true;
    if (error) {
      self->broken_ = true;
      log_debug(fmt::format("{}: TLS: {}", self->peer_, error.message()));
    }
    self->notify();
  });
  while (!broken_ && !tls_step_done_ && Clock::now() < deadline) co_await wait_until(deadline);
  co_return tls_step_done_ && !broken_;
}

asio::awaitable<void> HttpConnection::run() {
  const auto self = shared_from_this();
  // Also where there is no memory to wait, which ends the coroutine from outside.
  const struct AtEnd {
    ~AtEnd() { connection->abort(); }
    HttpConnection* connection;
  } close_at_end{this};
  bool open = false, failed = false;
  try {
    open = !stream_.secure() || co_await handshake();
    if (open) co_await serve_requests();
  } catch (const std::exception& error) {
    log_failure("http", error);
    failed = open && !answer_begun_ && !broken_;
  }
  if (failed) {  // most likely memory: the least that may be said
    try {
      ++serial_;
      keep_alive_ = false;
      answer(error_response(503, "ServiceUnavailableError", "out of memory for this request"));
      co_await flush();
      co_await linger();
    } catch (const std::exception& error) {
      log_failure("http", error);
    }
  }
}

// What an idle connection keeps counts: there may be thousands of them.
void HttpConnection::release_buffers() {
  if (write_in_flight_ || unwritten() > 0) return;
  writing_.clear();
  written_ = 0;
  for (std::string* buffer : {&out_, &writing_}) {
    if (buffer->capacity() > kIdleRead) *buffer = std::string();
  }
}

asio::awaitable<void> HttpConnection::serve_requests() {
  while (!broken_) {
    idle_ = true;
    release_buffers();
    answer_begun_ = false;
    BodyCount count(state_->body_bytes);
    ReadResult result = co_await read_head();
    if (result == ReadResult::kClosed) break;
    if (result == ReadResult::kRequest) result = co_await read_body(count);
    body_in_progress_ = false;
    if (result == ReadResult::kClosed) break;
    if (result == ReadResult::kFault) {
      ++serial_;
      keep_alive_ = false;
      answer(error_response(fault_status_, status_phrase(fault_status_), fault_reason_));
      log_access(status_);
      co_await flush();
      co_await linger();
      break;
    }
    dispatch();
    co_await serve();
    log_access(status_ == 0 ? 499 : status_);
    if (!keep_alive_ || disconnect_fired_) {
      if (!broken_ && !disconnect_fired_ && (input_.size() > 0 || stream_.secure())) co_await linger();
      break;
    }
  }
}

void HttpConnection::log_access(int status) const {
  const ServerConfig& config = state_->config;
  if (config.disable_access_log || !log_enabled(LogLevel::kInfo)) return;
  const HttpRequest& request = head_.request;
  if (std::ranges::find(config.disable_access_log_for_endpoints, request.path) !=
      config.disable_access_log_for_endpoints.end())
    return;
  constexpr size_t kMost = 512;
  const std::string_view method = request.method.empty() ? "?" : std::string_view(request.method).substr(0, 32);
  const std::string_view path = std::string_view(request.path).substr(0, kMost);
  const std::string_view query = std::string_view(request.query).substr(0, kMost);
  const std::chrono::duration<double> took = Clock::now() - request_begin_;
  const std::string line =
      fmt::format("{} - \"{} {}{}{} HTTP/1.{}\" {} {}", peer_, method, path, query.empty() ? "" : "?", query,
                  head_.version_minor, status, status == 499 ? "Client Closed Request" : status_phrase(status));
  log(LogLevel::kInfo, line,
      {{"client", peer_}, {"method", method}, {"path", path}, {"status", status}, {"seconds", took.count()}});
}

}  // namespace quire
