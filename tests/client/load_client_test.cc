#include "client/load_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

constexpr const char* kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

// Answers each request ("GET / ...\r\n\r\n") of each connection with `answer` after `delay_ms`, and closes the
// connection `linger_ms` after `per_connection` of them.
class SmallServer {
 public:
  SmallServer(std::string answer, int per_connection, int delay_ms = 0, int linger_ms = 0)
      : answer_(std::move(answer)),
        per_connection_(per_connection),
        delay_ms_(delay_ms),
        linger_ms_(linger_ms),
        listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    url_ = parse_http_url("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)), "url");
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~SmallServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (const int connection : open_) shutdown(connection, SHUT_RDWR);
    for (std::thread& thread : threads_) thread.join();
    for (const int connection : open_) close(connection);
    close(listener_);
  }
  SmallServer(const SmallServer&) = delete;
  SmallServer& operator=(const SmallServer&) = delete;
  const HttpUrl& url() const { return url_; }
  std::atomic<int> connections{0}, at_work{0}, most_at_work{0};

 private:
  void accept_all() {
    for (int connection; (connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      ++connections;
      open_.push_back(connection);
      threads_.emplace_back([this, connection] { serve(connection); });
    }
  }
  void serve(int connection) {
    std::string text;
    for (int answered = 0; answered < per_connection_; ++answered) {
      while (text.find("\r\n\r\n") == std::string::npos) {
        char buffer[1024];
        const ssize_t n = recv(connection, buffer, sizeof buffer, 0);
        if (n <= 0) return;
        text.append(buffer, static_cast<size_t>(n));
      }
      text.erase(0, text.find("\r\n\r\n") + 4);
      const int now = ++at_work;
      int most = most_at_work;
      while (now > most && !most_at_work.compare_exchange_weak(most, now)) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms_));
      --at_work;
      send(connection, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(linger_ms_));
    shutdown(connection, SHUT_RDWR);
  }

  std::string answer_;
  int per_connection_, delay_ms_, linger_ms_, listener_;
  HttpUrl url_;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

struct Record : LoadClient::Requests {
  explicit Record(size_t count) : bodies(count), errors(count), late(count) {}
  std::string message(size_t) override { return "GET / HTTP/1.1\r\n\r\n"; }
  void begin(size_t index, LoadClient::Clock::time_point due, LoadClient::Clock::time_point now) override {
    late[index] = std::chrono::duration<double>(now - due).count();
  }
  void answer(size_t, int status, const std::string&) override { ok += status == 200 ? 1 : 0; }
  void body(size_t index, std::string_view bytes, LoadClient::Clock::time_point) override { bodies[index] += bytes; }
  void end(size_t index, LoadClient::Clock::time_point, const std::string& error) override { errors[index] = error; }
  int ok = 0;
  std::vector<std::string> bodies, errors;
  std::vector<double> late;
};

void expect_all_ok(const Record& record) {
  for (size_t i = 0; i < record.bodies.size(); ++i) {
    EXPECT_EQ(record.bodies[i], "ok");
    EXPECT_EQ(record.errors[i], "");
  }
}

TEST(LoadClient, ConnectionsAreUsedAgain) {
  SmallServer server(kAnswer, 1000, 1);
  LoadClient client(server.url(), {false, 4, 0});
  Record record(50);
  client.run(std::vector<double>(50), record, [] {});
  expect_all_ok(record);
  EXPECT_EQ(record.ok, 50);
  EXPECT_LE(server.most_at_work, 4);
  EXPECT_LE(server.connections, 4);
  Record again(8);
  client.run(std::vector<double>(8), again, [] {});
  expect_all_ok(again);
  EXPECT_LE(server.connections, 4);
}

// The server closes each connection after two answers, without a word in their heads.
TEST(LoadClient, ClosedConnectionsAreReplaced) {
  SmallServer server(kAnswer, 2);
  LoadClient client(server.url(), {false, 3, 0});
  Record record(60);
  client.run(std::vector<double>(60), record, [] {});
  expect_all_ok(record);
  EXPECT_GE(server.connections, 30);
}

// The server closes a kept connection between the look at it and the request.
TEST(LoadClient, ARequestOutlivesItsConnection) {
  struct Slow final : Record {
    using Record::Record;
    std::string message(size_t) override {
      ++messages;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return "GET / HTTP/1.1\r\nX: " + std::string(1 << 20, 'x') + "\r\n\r\n";
    }
    int messages = 0;
  };
  SmallServer server(kAnswer, 1, 0, 100);
  LoadClient client(server.url(), {false, 1, 60});
  Slow record(3);
  const auto began = LoadClient::Clock::now();
  client.run(std::vector<double>(3), record, [] {});
  expect_all_ok(record);
  EXPECT_EQ(record.messages, 3);
  EXPECT_EQ(server.connections, 3);
  EXPECT_LT(LoadClient::Clock::now() - began, std::chrono::seconds(20));  // no timer of an old connection is waited for
}

TEST(LoadClient, AllAtOnceAndEachAtItsTime) {
  SmallServer server(kAnswer, 1000, 50);
  LoadClient client(server.url(), {false, 0, 0});
  Record record(30);
  client.run(std::vector<double>(30), record, [] {});
  expect_all_ok(record);
  EXPECT_GT(server.most_at_work, 10);
  std::vector<double> due;
  for (int i = 0; i < 10; ++i) due.push_back(0.03 * i);
  Record timed(10);
  const auto began = LoadClient::Clock::now();
  int ticks = 0;
  client.run(due, timed, [&] { ++ticks; });
  expect_all_ok(timed);
  EXPECT_GE(LoadClient::Clock::now() - began, std::chrono::milliseconds(320));
  EXPECT_GE(*std::min_element(timed.late.begin(), timed.late.end()), 0.0);
  EXPECT_GE(ticks, 2);
}

TEST(LoadClient, WhatFailsFailsAlone) {
  SmallServer cut("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", 1);
  Record record(3);
  LoadClient(cut.url(), {false, 1, 0}).run(std::vector<double>(3), record, [] {});
  for (const std::string& error : record.errors) EXPECT_EQ(error, "the connection broke in the middle of the answer");
  SmallServer slow(kAnswer, 1, 400);
  Record late(2);
  LoadClient(slow.url(), {false, 0, 0.1}).run(std::vector<double>(2), late, [] {});
  for (const std::string& error : late.errors) EXPECT_EQ(error, "no complete answer within 0.1 seconds");
  Record nobody(1);
  LoadClient(parse_http_url("http://127.0.0.1:1", "url"), {false, 0, 0}).run(std::vector<double>(1), nobody, [] {});
  EXPECT_EQ(nobody.errors[0], "cannot connect (Connection refused)");
  EXPECT_THROW(LoadClient(parse_http_url("http://no.such.host.invalid", "url"), {false, 0, 0}), Error);
}

}  // namespace
}  // namespace quire
