#include "client/http_client.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "client/answer_parser.h"
#include "client/event_lines.h"

namespace quire {
namespace {

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
};
struct FreeSslContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

// The reason of what OpenSSL has failed at; what it adds later only says in which step that was.
std::string last_reason() {
  const unsigned long code = ERR_peek_error();
  if (ERR_SYSTEM_ERROR(code)) return std::strerror(ERR_GET_REASON(code));
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  return reason != nullptr ? reason : "no answer";
}

}  // namespace

std::string error_message_of(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_object()) {
    const auto& error = json.contains("error") ? json["error"] : json;
    if (error.is_object() && error.contains("message") && error["message"].is_string()) return error["message"];
    if (error.is_string()) return error;
  }
  constexpr size_t kShown = 200;
  return body.substr(0, kShown);
}

// One request's connection.
class HttpClient::Connection {
 public:
  Connection(const HttpUrl& url, const Options& options) : where_(url.authority()) {
    ERR_clear_error();
    if (url.tls) {
      context_.reset(SSL_CTX_new(TLS_client_method()));
      if (context_ == nullptr) throw failure("TLS is not available");
      SSL_CTX_set_default_verify_paths(context_.get());
      SSL_CTX_set_verify(context_.get(), options.insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
      bio_.reset(BIO_new_ssl_connect(context_.get()));
      SSL* ssl = nullptr;
      if (bio_ != nullptr) BIO_get_ssl(bio_.get(), &ssl);
      if (ssl == nullptr) throw failure("TLS is not available");
      SSL_set_tlsext_host_name(ssl, url.host.c_str());
      if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), url.host.c_str()) != 1)
        SSL_set1_host(ssl, url.host.c_str());
      SSL_set_mode(ssl, SSL_MODE_AUTO_RETRY);
      BIO_set_conn_hostname(bio_.get(), where_.c_str());
    } else {
      bio_.reset(BIO_new_connect(where_.c_str()));
      if (bio_ == nullptr) throw failure("cannot connect");
    }
    connect(options.timeout);
    set_timeout(options.timeout);
  }

  void send(std::string_view text) {
    while (!text.empty()) {
      const int n = BIO_write(bio_.get(), text.data(), static_cast<int>(std::min<size_t>(text.size(), 1 << 20)));
      if (n <= 0) throw failure("the connection broke");
      text.remove_prefix(static_cast<size_t>(n));
    }
  }

  // Reads the answer to its end; `take` gets the pieces of its body and says whether it wants more.
  template <class Take>
  void receive(AnswerParser& parser, Take&& take) {
    try {
      while (!parser.complete()) {
        char buffer[16384];
        const int n = BIO_read(bio_.get(), buffer, sizeof buffer);
        if (n <= 0) {
          parser.end();
          return;
        }
        std::string_view bytes(buffer, static_cast<size_t>(n));
        while (!bytes.empty() && !parser.complete()) {
          const AnswerParser::Piece piece = parser.feed(bytes);
          bytes.remove_prefix(piece.taken);
          if (!piece.body.empty() && !take(piece.body)) return;
        }
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kUnavailable && error.param().empty()) throw failure(error.what());
      throw;
    }
  }

  Error failure(const std::string& what) const {
    return {ErrorKind::kUnavailable, fmt::format("{}: {}", where_, what), "url"};
  }

 private:
  // TCP's and TLS's handshakes, within so many seconds; 0: no limit. The socket blocks afterwards.
  void connect(double seconds) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point began = Clock::now();
    ERR_clear_error();
    BIO_set_nbio(bio_.get(), seconds > 0 ? 1 : 0);
    while (BIO_do_connect(bio_.get()) <= 0) {
      if (!BIO_should_retry(bio_.get())) throw failure(fmt::format("cannot connect ({})", last_reason()));
      const double left = seconds - std::chrono::duration<double>(Clock::now() - began).count();
      if (left <= 0) throw failure(fmt::format("cannot connect (no answer within {} seconds)", seconds));
      constexpr double kMost = 1e6;  // milliseconds, an int's worth
      pollfd socket{descriptor(), static_cast<short>(BIO_should_read(bio_.get()) ? POLLIN : POLLOUT), 0};
      poll(&socket, 1, static_cast<int>(std::ceil(std::min(left * 1e3, kMost))));
    }
    if (seconds > 0) BIO_socket_nbio(descriptor(), 0);
  }

  int descriptor() const {
    int descriptor = -1;
    return BIO_get_fd(bio_.get(), &descriptor) < 0 ? -1 : descriptor;
  }

  void set_timeout(double seconds) {
    if (seconds <= 0) return;
    timeval time{};
    time.tv_sec = static_cast<time_t>(seconds);
    time.tv_usec = static_cast<suseconds_t>((seconds - std::floor(seconds)) * 1e6);
    setsockopt(descriptor(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(descriptor(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  }

  std::string where_;
  std::unique_ptr<SSL_CTX, FreeSslContext> context_;
  std::unique_ptr<BIO, FreeBio> bio_;
};

HttpClient::HttpClient(HttpUrl url, Options options) : url_(std::move(url)), options_(std::move(options)) {
  check_header_value(options_.bearer_token, "the API key");
  for (const auto& [name, value] : options_.headers) check_header_value(name + value, "header");
}

std::string HttpClient::request_head(std::string_view method, const std::string& path, size_t body_bytes,
                                     std::string_view content_type) const {
  const std::string target = url_.path + path;
  std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAccept: */*\r\n", method,
                                 target.empty() ? "/" : target, url_.authority());
  if (!options_.bearer_token.empty()) head += fmt::format("Authorization: Bearer {}\r\n", options_.bearer_token);
  for (const auto& [name, value] : options_.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (body_bytes > 0) head += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", content_type, body_bytes);
  return head + "\r\n";
}

HttpClient::Answer HttpClient::request(std::string_view method, const std::string& path, std::string_view body,
                                       std::string_view content_type) const {
  Connection connection(url_, options_);
  connection.send(request_head(method, path, body.size(), content_type));
  connection.send(body);
  AnswerParser parser;
  Answer answer;
  connection.receive(parser, [&](std::string_view piece) {
    answer.body += piece;
    if (answer.body.size() > options_.max_body)
      throw connection.failure(fmt::format("the answer is longer than {} bytes", options_.max_body));
    return true;
  });
  answer.status = parser.status();
  return answer;
}

std::string HttpClient::checked(const std::string& path, Answer answer) const {
  if (answer.status / 100 == 2) return std::move(answer.body);
  const auto kind = answer.status / 100 == 4 ? ErrorKind::kInvalidArgument : ErrorKind::kInternal;
  throw Error(kind, fmt::format("{} answered {}: {}", url_of(path), answer.status, error_message_of(answer.body)),
              "url");
}

std::string HttpClient::get(const std::string& path) const { return checked(path, request("GET", path)); }

std::string HttpClient::post(const std::string& path, std::string_view body) const {
  return checked(path, request("POST", path, body));
}

void HttpClient::post_stream(const std::string& path, const std::string& body,
                             const std::function<void(std::string_view data)>& on_event) const {
  Connection connection(url_, options_);
  connection.send(request_head("POST", path, body.size(), "application/json"));
  connection.send(body);
  AnswerParser parser;
  EventLines lines;
  std::string refusal;
  bool done = false;
  connection.receive(parser, [&](std::string_view piece) {
    if (parser.status() != 200) {
      refusal += piece.substr(0, std::min(piece.size(), options_.max_body - refusal.size()));
      return true;
    }
    lines.feed(piece);
    while (const std::optional<std::string_view> data = lines.next()) {
      if (*data == "[DONE]") {
        done = true;
        return false;
      }
      on_event(*data);
    }
    return true;
  });
  if (parser.status() != 200) checked(path, {parser.status() / 100 == 2 ? 500 : parser.status(), refusal});
  if (!done) {
    lines.finish();
    while (const std::optional<std::string_view> data = lines.next()) {
      if (*data != "[DONE]") on_event(*data);
    }
  }
}

}  // namespace quire
