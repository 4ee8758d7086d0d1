#include "cli/http_client.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

constexpr size_t kMaxLineBytes = 16 << 20;  // one server-sent event may hold many log-probabilities
constexpr size_t kMaxBodyBytes = 64 << 20;
constexpr int kMaxHeaders = 256;

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
};
struct FreeSslContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

// The server's own words for what is wrong: {"error": {"message": ...}}, {"message": ...}, else the start of the body.
std::string message_of(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_object()) {
    const auto& error = json.contains("error") ? json["error"] : json;
    if (error.is_object() && error.contains("message") && error["message"].is_string()) return error["message"];
    if (error.is_string()) return error;
  }
  constexpr size_t kShown = 200;
  return body.substr(0, kShown);
}

}  // namespace

// One request's connection: reads lines and counted bytes through a buffer, and takes the chunked coding away.
class HttpClient::Connection {
 public:
  explicit Connection(const HttpClient& client) : where_(client.host_ + ":" + client.port_) {
    const std::string address =
        (client.host_.find(':') == std::string::npos ? client.host_ : "[" + client.host_ + "]") + ":" + client.port_;
    if (client.tls_) {
      context_.reset(SSL_CTX_new(TLS_client_method()));
      if (context_ == nullptr) throw failure("TLS is not available");
      SSL_CTX_set_default_verify_paths(context_.get());
      SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
      bio_.reset(BIO_new_ssl_connect(context_.get()));
      SSL* ssl = nullptr;
      if (bio_ != nullptr) BIO_get_ssl(bio_.get(), &ssl);
      if (ssl == nullptr) throw failure("TLS is not available");
      SSL_set_tlsext_host_name(ssl, client.host_.c_str());
      SSL_set1_host(ssl, client.host_.c_str());
      SSL_set_mode(ssl, SSL_MODE_AUTO_RETRY);
      BIO_set_conn_hostname(bio_.get(), address.c_str());
    } else {
      bio_.reset(BIO_new_connect(address.c_str()));
      if (bio_ == nullptr) throw failure("cannot connect");
    }
    ERR_clear_error();
    if (BIO_do_connect(bio_.get()) <= 0) {
      const unsigned long code = ERR_peek_last_error();
      const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
      const int system_error = ERR_SYSTEM_ERROR(code) ? ERR_GET_REASON(code) : 0;
      throw failure(fmt::format("cannot connect ({})", system_error != 0 ? std::string(strerror(system_error))
                                                       : reason          ? reason
                                                                         : "no answer"));
    }
  }

  void send(const std::string& text) {
    size_t sent = 0;
    while (sent < text.size()) {
      const int n =
          BIO_write(bio_.get(), text.data() + sent, static_cast<int>(std::min<size_t>(text.size() - sent, 1 << 20)));
      if (n <= 0) throw failure("the connection broke");
      sent += static_cast<size_t>(n);
    }
  }

  // Reads status line and headers. Returns the status.
  int read_head() {
    int status = 0;
    do {  // 1xx answers come before the real one
      const std::string line = raw_line();
      const size_t space = line.find(' ');
      if (!line.starts_with("HTTP/1.") || space == std::string::npos) throw failure("the answer is not HTTP");
      status = 0;
      std::from_chars(line.data() + space + 1, line.data() + line.size(), status);
      for (int headers = 0;; ++headers) {
        const std::string header = raw_line();
        if (header.empty()) break;
        if (headers == kMaxHeaders) throw failure(fmt::format("more than {} headers in the answer", kMaxHeaders));
        const size_t colon = header.find(':');
        if (colon == std::string::npos) continue;
        const std::string name = lower(header.substr(0, colon));
        const std::string value(trim(std::string_view(header).substr(colon + 1)));
        if (name == "transfer-encoding" && lower(value).find("chunked") != std::string::npos) chunked_ = true;
        if (name == "content-length") {
          size_t bytes = 0;
          const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), bytes);
          if (error != std::errc{} || end != value.data() + value.size())
            throw failure("a bad Content-Length in the answer");
          left_ = bytes;
        }
      }
    } while (status / 100 == 1);
    if (chunked_) left_ = 0;
    return status;
  }

  // A line of the body without its end; empty optional at the end of the body.
  std::optional<std::string> body_line() {
    std::string line;
    for (;;) {
      const std::optional<char> c = body_byte();
      if (!c.has_value()) return line.empty() ? std::nullopt : std::optional(line);
      if (*c == '\n') break;
      line += *c;
      if (line.size() > kMaxLineBytes)
        throw failure(fmt::format("a line of the answer is longer than {} bytes", kMaxLineBytes));
    }
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return line;
  }

  std::string whole_body() {
    std::string body;
    while (const std::optional<char> c = body_byte()) {
      body += *c;
      if (body.size() > kMaxBodyBytes) throw failure(fmt::format("the answer is longer than {} bytes", kMaxBodyBytes));
    }
    return body;
  }

  Error failure(const std::string& what) const {
    return {ErrorKind::kUnavailable, fmt::format("{}: {}", where_, what), "url"};
  }

 private:
  std::optional<char> raw_byte() {
    if (at_ == end_) {
      const int n = BIO_read(bio_.get(), buffer_, sizeof buffer_);
      if (n <= 0) return std::nullopt;
      at_ = 0;
      end_ = static_cast<size_t>(n);
    }
    return buffer_[at_++];
  }

  std::string raw_line() {
    std::string line;
    for (;;) {
      const std::optional<char> c = raw_byte();
      if (!c.has_value()) throw failure("the connection broke");
      if (*c == '\n') break;
      line += *c;
      constexpr size_t kMaxHeadLine = 64 << 10;
      if (line.size() > kMaxHeadLine) throw failure("a header of the answer is too long");
    }
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return line;
  }

  std::optional<char> body_byte() {
    if (done_) return std::nullopt;
    if (left_ == size_t{0}) {
      if (!chunked_) return std::nullopt;
      if (chunks_ > 0) raw_line();  // the line end after a chunk
      ++chunks_;
      const std::string size = raw_line();
      size_t bytes = 0;
      const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), bytes, 16);
      if (error != std::errc{}) throw failure("a bad chunk in the answer");
      if (bytes == 0) {
        done_ = true;
        return std::nullopt;
      }
      left_ = bytes;
    }
    const std::optional<char> c = raw_byte();
    if (!c.has_value()) {
      if (left_.has_value()) throw failure("the connection broke in the middle of the answer");
      done_ = true;  // no length was given: the end of the connection is the end of the body
    } else if (left_.has_value()) {
      --*left_;
    }
    return c;
  }

  std::string where_;
  std::unique_ptr<SSL_CTX, FreeSslContext> context_;
  std::unique_ptr<BIO, FreeBio> bio_;
  char buffer_[16384];
  size_t at_ = 0, end_ = 0;
  bool chunked_ = false, done_ = false;
  int64_t chunks_ = 0;
  std::optional<size_t> left_;  // bytes of the body, or of the chunk
};

HttpClient::HttpClient(const std::string& base_url, std::string bearer_token)
    : base_url_(base_url), bearer_token_(std::move(bearer_token)) {
  const auto refuse = [&] {
    return invalid_argument(fmt::format("--url {}: must look like http://host:port/v1", base_url), "url");
  };
  std::string_view rest = base_url;
  if (rest.starts_with("https://")) {
    tls_ = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    throw refuse();
  }
  for (const std::string_view text : {rest, std::string_view(bearer_token_)}) {
    if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7f; }))
      throw refuse();
  }
  const std::string_view authority = rest.substr(0, rest.find('/'));
  prefix_ = rest.substr(authority.size());
  while (prefix_.ends_with('/')) prefix_.pop_back();
  size_t colon = authority.rfind(':');
  if (authority.starts_with('[')) {
    const size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) throw refuse();
    host_ = authority.substr(1, bracket - 1);
    if (colon < bracket) colon = std::string_view::npos;
  } else {
    host_ = authority.substr(0, colon);
  }
  port_ = colon == std::string_view::npos ? (tls_ ? "443" : "80") : std::string(authority.substr(colon + 1));
  if (host_.empty() || port_.empty() || port_.size() > 5 || port_.find_first_not_of("0123456789") != std::string::npos)
    throw refuse();
}

std::string HttpClient::request_head(std::string_view method, const std::string& path, size_t body_bytes) const {
  const std::string host = host_.find(':') == std::string::npos ? host_ : "[" + host_ + "]";
  std::string head = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nAccept: */*\r\n", method,
                                 prefix_, path, host, port_);
  if (!bearer_token_.empty()) head += fmt::format("Authorization: Bearer {}\r\n", bearer_token_);
  if (body_bytes > 0) head += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body_bytes);
  return head + "\r\n";
}

namespace {
void check_status(int status, const std::string& url, const std::string& body) {
  if (status == 200) return;
  const auto kind = status / 100 == 4 ? ErrorKind::kInvalidArgument : ErrorKind::kInternal;
  throw Error(kind, fmt::format("{} answered {}: {}", url, status, message_of(body)), "url");
}
}  // namespace

std::string HttpClient::get(const std::string& path) const {
  Connection connection(*this);
  connection.send(request_head("GET", path, 0));
  const int status = connection.read_head();
  std::string body = connection.whole_body();
  check_status(status, base_url_ + path, body);
  return body;
}

void HttpClient::post_stream(const std::string& path, const std::string& body,
                             const std::function<void(std::string_view data)>& on_event) const {
  Connection connection(*this);
  connection.send(request_head("POST", path, body.size()) + body);
  const int status = connection.read_head();
  if (status != 200) check_status(status, base_url_ + path, connection.whole_body());
  while (const std::optional<std::string> line = connection.body_line()) {
    if (!line->starts_with("data:")) continue;  // comments, empty lines, other fields
    const std::string_view data = trim(std::string_view(*line).substr(5));
    if (data == "[DONE]") return;
    on_event(data);
  }
}

}  // namespace quire
