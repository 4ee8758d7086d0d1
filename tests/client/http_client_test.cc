#include "client/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/error.h"

namespace quire {
namespace {

// Takes connections; nobody answers unless answer_one() runs.
class Listener {
 public:
  Listener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = std::to_string(ntohs(address.sin_port));
  }
  ~Listener() { close(socket_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  const std::string& port() const { return port_; }

  void answer_one(std::chrono::milliseconds delay) const {
    const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    char buffer[4096];
    EXPECT_GT(recv(connection, buffer, sizeof buffer, 0), 0);
    std::this_thread::sleep_for(delay);
    const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
    close(connection);
  }

 private:
  int socket_;
  std::string port_;
};

std::string error_of(const std::string& url, double timeout) {
  HttpClient::Options options;
  options.timeout = timeout;
  try {
    HttpClient(parse_http_url(url, "url"), options).get("/");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HttpClient, TheTimeoutCoversTheHandshakes) {
  const Listener silent;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of("https://127.0.0.1:" + silent.port(), 0.2),
            "127.0.0.1:" + silent.port() + ": cannot connect (no answer within 0.2 seconds)");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST(HttpClient, ARefusalIsOneAtOnceWithAndWithoutTimeout) {
  const auto began = std::chrono::steady_clock::now();
  for (const double timeout : {0.0, 60.0})
    EXPECT_EQ(error_of("http://127.0.0.1:1", timeout), "127.0.0.1:1: cannot connect (Connection refused)");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

// By name: the host may have another address that refuses.
TEST(HttpClient, WaitsForAnAnswerWithinTheTimeout) {
  const Listener listener;
  std::thread server([&] { listener.answer_one(std::chrono::milliseconds(200)); });
  EXPECT_EQ(error_of("http://localhost:" + listener.port(), 5), "");
  server.join();
}

}  // namespace
}  // namespace quire
