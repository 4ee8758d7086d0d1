#include "client/load_client.h"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "client/answer_parser.h"

namespace quire {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

std::chrono::nanoseconds to_duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

struct LoadClient::Impl {
  class Connection;

  Impl(const HttpUrl& where, Options given) : url(where), options(given), tls(asio::ssl::context::tls_client) {
    error_code error;
    tcp::resolver resolver(io);
    const auto found = resolver.resolve(url.host, url.port, error);
    if (error)
      throw Error(ErrorKind::kUnavailable, fmt::format("{}: {}", url.authority(), error.message()), "base-url");
    endpoints.assign(found.begin(), found.end());
    if (!url.tls) return;
    tls.set_default_verify_paths(error);
    tls.set_verify_mode(options.insecure ? asio::ssl::verify_none : asio::ssl::verify_peer);
  }

  bool may_start(size_t count) const {
    return next < count && (options.max_concurrency == 0 || at_work < options.max_concurrency);
  }
  void start_what_is_due();
  void wait_for_next();
  void tick();
  void launch(size_t index, Clock::time_point due_time);
  void ended(size_t index, const std::string& error, Clock::time_point now);

  HttpUrl url;
  Options options;
  asio::io_context io{1};
  asio::ssl::context tls;
  std::vector<tcp::endpoint> endpoints;
  std::vector<std::shared_ptr<Connection>> idle;  // the last is the one used last

  // Of the run at work.
  std::span<const double> due;
  Requests* requests = nullptr;
  const std::function<void()>* every_tick = nullptr;
  Clock::time_point began;
  size_t next = 0, done = 0;
  int64_t at_work = 0;
  std::optional<asio::steady_timer> timer, ticker;
};

// One connection, at work on at most one request.
class LoadClient::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(Impl& owner) : owner_(owner), socket_(owner.io), deadline_(owner.io) {}

  bool open() const { return open_; }

  void begin(size_t index) {
    if (owner_.options.timeout > 0) deadline_.expires_after(to_duration(owner_.options.timeout));
    start(index, owner_.requests->message(index));
  }

  // Before the next request: the server may have closed the connection, or sent what nobody has asked for.
  bool still_idle() {
    if (!open_) return false;
    char byte = 0;
    error_code error;
    socket_.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, error);
    return error == asio::error::would_block;
  }

  void close() {
    open_ = false;
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  using Stream = asio::ssl::stream<tcp::socket&>;

  // `deadline_` is set.
  void start(size_t index, std::string message) {
    index_ = index;
    message_ = std::move(message);
    parser_.reset();
    told_head_ = false;
    written_ = false;
    busy_ = true;
    if (owner_.options.timeout > 0) {
      deadline_.async_wait([self = shared_from_this(), index](error_code error) {
        if (!error && self->busy_ && self->index_ == index)
          self->fail(fmt::format("no complete answer within {} seconds", self->owner_.options.timeout));
      });
    }
    used_before_ = open_;
    open_ ? exchange() : connect();
  }

  void connect() {
    asio::async_connect(socket_, owner_.endpoints, [self = shared_from_this()](error_code error, const tcp::endpoint&) {
      if (!self->busy_) return;
      if (error) return self->fail(fmt::format("cannot connect ({})", error.message()));
      self->socket_.set_option(tcp::no_delay(true), error);
      self->socket_.non_blocking(true, error);
      self->owner_.url.tls ? self->shake_hands() : self->opened();
    });
  }

  void shake_hands() {
    stream_.emplace(socket_, owner_.tls);
    const std::string& host = owner_.url.host;
    SSL_set_tlsext_host_name(stream_->native_handle(), host.c_str());
    if (!owner_.options.insecure) stream_->set_verify_callback(asio::ssl::host_name_verification(host));
    stream_->async_handshake(asio::ssl::stream_base::client, [self = shared_from_this()](error_code error) {
      if (!self->busy_) return;
      error ? self->fail(fmt::format("TLS: {}", error.message())) : self->opened();
    });
  }

  void opened() {
    open_ = true;
    exchange();
  }

  // Writes and reads at the same time: a server may refuse a request that it has not read.
  void exchange() {
    const auto wrote = [self = shared_from_this()](error_code error, size_t) {
      if (!error) self->written_ = true;  // an error shows up when reading
    };
    if (stream_) {
      asio::async_write(*stream_, asio::buffer(message_), wrote);
    } else {
      asio::async_write(socket_, asio::buffer(message_), wrote);
    }
    read();
  }

  void read() {
    const auto got = [self = shared_from_this()](error_code error, size_t bytes) { self->take(error, bytes); };
    if (stream_) {
      stream_->async_read_some(asio::buffer(buffer_), got);
    } else {
      socket_.async_read_some(asio::buffer(buffer_), got);
    }
  }

  void take(error_code error, size_t size) {
    const Clock::time_point now = Clock::now();
    if (!busy_) return;
    try {
      std::string_view bytes(buffer_, size);
      while (!bytes.empty() && !parser_.complete()) {
        const AnswerParser::Piece piece = parser_.feed(bytes);
        bytes.remove_prefix(piece.taken);
        if (parser_.has_head() && !std::exchange(told_head_, true))
          owner_.requests->answer(index_, parser_.status(), parser_.reason());
        if (!piece.body.empty()) owner_.requests->body(index_, piece.body, now);
      }
      if (error && !parser_.complete()) {
        if (used_before_ && !parser_.begun()) return begin_again();
        parser_.end();
      }
    } catch (const Error& failure) {
      return fail(failure.what());
    }
    if (!parser_.complete()) return read();
    if (!parser_.keep_alive() || !written_ || error) close();
    finish({}, now);
  }

  // The server has closed a kept connection just when it was used again, which is nobody's fault. The request goes to a
  // new one with what is left of its time: this one's streams and message may still be in use by a write.
  void begin_again() {
    close();
    busy_ = false;
    const auto fresh = std::make_shared<Connection>(owner_);
    if (owner_.options.timeout > 0) {
      fresh->deadline_.expires_at(deadline_.expiry());
      deadline_.cancel();
    }
    fresh->start(index_, message_);
  }

  void fail(const std::string& why) {
    close();
    finish(why, Clock::now());
  }

  void finish(const std::string& error, Clock::time_point now) {
    busy_ = false;
    if (owner_.options.timeout > 0) deadline_.cancel();
    if (open_) owner_.idle.push_back(shared_from_this());
    owner_.ended(index_, error, now);
  }

  Impl& owner_;
  tcp::socket socket_;
  std::optional<Stream> stream_;
  asio::steady_timer deadline_;
  AnswerParser parser_;
  std::string message_;
  char buffer_[16384];
  size_t index_ = 0;
  bool open_ = false, busy_ = false, written_ = false, told_head_ = false, used_before_ = false;
};

void LoadClient::Impl::launch(size_t index, Clock::time_point due_time) {
  std::shared_ptr<Connection> connection;
  while (!idle.empty() && connection == nullptr) {
    if (idle.back()->still_idle()) connection = idle.back();
    idle.pop_back();
  }
  if (connection == nullptr) connection = std::make_shared<Connection>(*this);
  ++at_work;
  requests->begin(index, due_time, Clock::now());
  connection->begin(index);
}

void LoadClient::Impl::start_what_is_due() {
  const Clock::time_point now = Clock::now();
  while (may_start(due.size())) {
    const Clock::time_point time = began + to_duration(due[next]);
    if (time > now) break;
    launch(next++, time);
  }
  wait_for_next();
}

void LoadClient::Impl::wait_for_next() {
  if (!may_start(due.size())) return;
  timer->expires_at(began + to_duration(due[next]));
  timer->async_wait([this](error_code error) {
    if (!error) start_what_is_due();
  });
}

void LoadClient::Impl::ended(size_t index, const std::string& error, Clock::time_point now) {
  --at_work;
  ++done;
  requests->end(index, now, error);
  if (done == due.size()) {
    timer->cancel();
    ticker->cancel();
  } else if (next < due.size() && options.max_concurrency > 0) {
    asio::post(io, [this] { start_what_is_due(); });  // not from within the connection that has just ended
  }
}

void LoadClient::Impl::tick() {
  constexpr std::chrono::milliseconds kTick{100};
  ticker->expires_after(kTick);
  ticker->async_wait([this](error_code error) {
    if (error || done == due.size()) return;
    (*every_tick)();
    tick();
  });
}

LoadClient::LoadClient(const HttpUrl& url, Options options) : impl_(std::make_unique<Impl>(url, options)) {}

LoadClient::~LoadClient() = default;

void LoadClient::run(std::span<const double> due, Requests& requests, const std::function<void()>& every_tick) {
  Impl& impl = *impl_;
  if (due.empty()) return;
  impl.due = due;
  impl.requests = &requests;
  impl.every_tick = &every_tick;
  impl.next = impl.done = 0;
  impl.timer.emplace(impl.io);
  impl.ticker.emplace(impl.io);
  impl.began = Clock::now();
  impl.tick();
  impl.start_what_is_due();
  impl.io.restart();
  impl.io.run();
}

}  // namespace quire
