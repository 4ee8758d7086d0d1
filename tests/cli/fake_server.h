#pragma once
// A server of canned answers: each connection gets the answer that the test's function makes of its request.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace quire {

struct FakeRequest {
  std::string head, body;
};

class FakeServer {
 public:
  using Answer = std::function<std::string(const FakeRequest&)>;
  explicit FakeServer(Answer answer)
      : answer_(std::move(answer)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 16) != 0)
      throw std::runtime_error("bind");
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    stop_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/v1"; }
  std::vector<FakeRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (!stop_) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      answer_one(connection);
      close(connection);
    }
  }
  void answer_one(int connection) {
    std::string text;
    size_t head = std::string::npos, total = std::string::npos;
    while (text.size() < total) {
      char buffer[4096];
      const ssize_t n = recv(connection, buffer, sizeof buffer, 0);
      if (n <= 0) return;
      text.append(buffer, static_cast<size_t>(n));
      if (head == std::string::npos && (head = text.find("\r\n\r\n")) != std::string::npos) {
        head += 4;
        const size_t length = text.find("Content-Length: ");
        total = head + (length < head ? std::stoul(text.substr(length + 16)) : 0);
      }
    }
    const FakeRequest request{text.substr(0, head), text.substr(head)};
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const std::string answer = answer_(request);
    send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
  }

  Answer answer_;
  int listener_;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::vector<FakeRequest> requests_;
  std::thread thread_;
};

}  // namespace quire
