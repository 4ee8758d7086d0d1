// Clients that never come to an end, and answers that nobody gives, on a loopback socket.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "raw_client.h"
#include "server/http_server.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

ServerConfig test_config() {
  ServerConfig config;
  config.host = "127.0.0.1";
  config.port = 0;
  config.disable_access_log = true;
  config.body_timeout = 0.3;
  return config;
}

TEST(StubbornClients, BodyThatTricklesInEndsWith408) {
  HttpServer server(test_config(), [](std::shared_ptr<HttpExchange> exchange) { exchange->respond({}); });
  server.start();
  RawClient client(server.port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  const auto start = std::chrono::steady_clock::now();
  RawClient::Answer answer;
  while (answer.status == 0 && std::chrono::steady_clock::now() < start + 3s) {
    client.send("x");
    answer = client.read_answer(false, 100);
  }
  EXPECT_EQ(answer.status, 408);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
}

TEST(StubbornClients, LargeBodyMayTakeLongerThanItsTimeout) {
  HttpServer server(test_config(), [](std::shared_ptr<HttpExchange> exchange) { exchange->respond({}); });
  server.start();
  RawClient client(server.port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8000\r\n\r\n");
  for (int i = 0; i < 8; ++i) {  // 0.8 s, faster than 1 KiB/s
    client.send(std::string(1000, 'x'));
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST(StubbornClients, DroppedExchangeIsAnsweredOnce) {
  HttpServer server(test_config(), [](std::shared_ptr<HttpExchange>) {});
  server.start();
  RawClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(client.read_answer().status, 500);
  }
}

// Who has hung up gets no error for it: a client that closed its sending side only would take it for the answer.
TEST(StubbornClients, NoAnswerAfterHangingUp) {
  HttpServer server(test_config(), [](std::shared_ptr<HttpExchange> exchange) {
    auto& waiting = *exchange;
    waiting.on_disconnect([exchange = std::move(exchange)] {});
  });
  server.start();
  RawClient client(server.port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx");
  std::this_thread::sleep_for(50ms);
  client.finish_sending();
  EXPECT_EQ(client.read_answer().status, 0);
}

}  // namespace
}  // namespace quire
