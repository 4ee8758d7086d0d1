#pragma once
// A plain blocking socket client for tests: sends bytes as they are and reads what comes back.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace quire {

class RawClient {
 public:
  explicit RawClient(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void finish_sending() { ::shutdown(fd_, SHUT_WR); }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  struct Answer {
    int status = 0;  // 0: nothing came
    std::string head, body;
  };
  // The next answer (with Content-Length or chunks; a HEAD answer has no body).
  Answer read_answer(bool head_only = false, int timeout_ms = 3000) {
    Answer answer;
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!receive(timeout_ms)) return answer;
    }
    answer.head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    answer.status = answer.head.size() > 12 ? std::atoi(answer.head.c_str() + 9) : -1;
    if (head_only) return answer;
    if (const size_t at = answer.head.find("content-length: "); at != std::string::npos) {
      const auto length = static_cast<size_t>(std::atoll(answer.head.c_str() + at + 16));
      while (buffer_.size() < length && receive(timeout_ms)) {
      }
      answer.body = buffer_.substr(0, length);
      buffer_.erase(0, length);
      return answer;
    }
    while (true) {  // chunks
      size_t line;
      while ((line = buffer_.find("\r\n")) == std::string::npos) {
        if (!receive(timeout_ms)) return answer;
      }
      const auto length = static_cast<size_t>(std::strtoll(buffer_.c_str(), nullptr, 16));
      while (buffer_.size() < line + 2 + length + 2) {
        if (!receive(timeout_ms)) return answer;
      }
      answer.body += buffer_.substr(line + 2, length);
      buffer_.erase(0, line + 2 + length + 2);
      if (length == 0) return answer;
    }
  }
  // True if the other side closes within the time.
  bool closed_within(int timeout_ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (std::chrono::steady_clock::now() < end) {
      pollfd waiting{fd_, POLLIN, 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      char bytes[4096];
      const ssize_t count = ::recv(fd_, bytes, sizeof bytes, 0);
      if (count <= 0) return true;
      buffer_.append(bytes, static_cast<size_t>(count));
    }
    return false;
  }
  const std::string& buffered() const { return buffer_; }
  int fd() const { return fd_; }

 private:
  bool receive(int timeout_ms) {
    pollfd waiting{fd_, POLLIN, 0};
    if (::poll(&waiting, 1, timeout_ms) <= 0) return false;
    char bytes[16384];
    const ssize_t count = ::recv(fd_, bytes, sizeof bytes, 0);
    if (count <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  int fd_;
  bool connected_ = false;
  std::string buffer_;
};

}  // namespace quire
