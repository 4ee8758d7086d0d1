#pragma once
// A connection's byte stream: its socket, or TLS over it. Which one is asked on each call, so that the code of a
// connection exists once; a plain stream pays one branch for it.
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <utility>

namespace quire {

using HttpSocket = boost::asio::generic::stream_protocol::socket;
using TlsSettings = std::shared_ptr<boost::asio::ssl::context>;

class HttpStream {
 public:
  // Without settings: a plain stream.
  HttpStream(HttpSocket socket, const TlsSettings& tls) : socket_(std::move(socket)) {
    if (tls) tls_ = std::make_unique<Tls>(socket_, *tls);
  }
  HttpStream(const HttpStream&) = delete;  // tls_ points to socket_
  HttpStream& operator=(const HttpStream&) = delete;

  bool secure() const { return tls_ != nullptr; }
  HttpSocket& socket() { return socket_; }
  auto get_executor() { return socket_.get_executor(); }

  // handler(error_code, size_t). One read and one write may be under way at a time, on the executor's thread.
  template <typename Buffer, typename Handler>
  void read_some(const Buffer& buffer, Handler handler) {
    if (tls_) {
      tls_->async_read_some(buffer, std::move(handler));
    } else {
      socket_.async_read_some(buffer, std::move(handler));
    }
  }
  template <typename Buffer, typename Handler>
  void write_some(const Buffer& buffer, Handler handler) {
    if (tls_) {
      tls_->async_write_some(buffer, std::move(handler));
    } else {
      socket_.async_write_some(buffer, std::move(handler));
    }
  }

  // TLS only; handler(error_code).
  template <typename Handler>
  void handshake(Handler handler) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }
  template <typename Handler>
  void shut_down_tls(Handler handler) {
    tls_->async_shutdown(std::move(handler));
  }

 private:
  using Tls = boost::asio::ssl::stream<HttpSocket&>;
  HttpSocket socket_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace quire
