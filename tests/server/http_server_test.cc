// The HTTP layer on a loopback socket, with small handlers and no engine.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "test_server.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

class Quiet : public testing::Environment {
 public:
  void SetUp() override { set_log_level(LogLevel::kError); }
};
[[maybe_unused]] const auto* const kQuiet = testing::AddGlobalTestEnvironment(new Quiet);

TEST(HttpServer, RawCases) {
  std::ifstream file(QUIRE_TEST_DATA "/server/http_cases.json");
  ASSERT_TRUE(file) << "tests/data/server/http_cases.json is missing";
  const auto cases = nlohmann::json::parse(file);
  ASSERT_GE(cases.size(), 80u);
  const TestServer server;
  for (const auto& item : cases) {
    const std::string id = item["id"];
    SCOPED_TRACE(id);
    RawClient client(server.port());
    ASSERT_TRUE(client.connected());
    const std::string raw = to_bytes(item["raw"]);
    client.send(raw);
    const auto answer = client.read_answer(raw.starts_with("HEAD "));
    std::vector<int> expected = item["expect_status"];
    EXPECT_TRUE(std::ranges::find(expected, answer.status) != expected.end()) << answer.status << " " << answer.body;
    if (answer.status >= 400) {
      const auto body = nlohmann::json::parse(answer.body);
      EXPECT_TRUE(body["error"]["message"].is_string() && body["error"]["code"] == answer.status) << answer.body;
    }
    if (id == "pipeline_2") {
      EXPECT_EQ(client.read_answer().status, 200);
    }
    if (id == "get_on_post") {
      EXPECT_NE(answer.head.find("Allow: POST"), std::string::npos);
    }
    if (item.contains("connection_after")) {
      EXPECT_TRUE(client.closed_within(2000));
      EXPECT_EQ(client.buffered().find("HTTP/1.1"), std::string::npos) << "a second answer after a framing error";
    } else {
      client.send(kHealth);  // the connection stays usable
      EXPECT_EQ(client.read_answer().status, 200);
    }
    EXPECT_EQ(server.health(), 200);
  }
}

// Damaged requests, each on its own connection that is then half closed: an answer or a close, and the server goes on.
TEST(HttpServer, DamagedRequests) {
  std::ifstream file(QUIRE_TEST_DATA "/server/http_cases.json");
  const auto cases = nlohmann::json::parse(file);
  const TestServer server;
  std::mt19937 random(17);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  static constexpr std::string_view kOdd("\r\n\0 :;,{}[]\"\\0f\xff", 17);
  for (int i = 0; i < 1500; ++i) {
    std::string raw = to_bytes(cases[below(cases.size())]["raw"]);
    for (size_t changes = 1 + below(4); changes > 0 && !raw.empty(); --changes) {
      const size_t at = below(raw.size());
      switch (below(4)) {
        case 0:
          raw[at] = kOdd[below(kOdd.size())];
          break;
        case 1:
          raw.erase(at, 1 + below(8));
          break;
        case 2:
          raw.insert(at, raw.substr(below(raw.size()), below(16)));
          break;
        default:
          raw.resize(at + 1);
          break;
      }
    }
    RawClient client(server.port());
    client.send(raw);
    ::shutdown(client.fd(), SHUT_WR);
    ASSERT_TRUE(client.closed_within(3000))
        << nlohmann::json(raw).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    ASSERT_EQ(client.buffered().find("HTTP/1.1 500"), std::string::npos) << client.buffered();
  }
  EXPECT_EQ(server.health(), 200);
}

TEST(HttpServer, BodyArrivesTheSameForEverySplit) {
  const TestServer server;
  const std::string raw =
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nT: "
      "v\r\n\r\n";
  RawClient client(server.port());
  for (size_t cut = 1; cut < raw.size(); ++cut) {
    client.send(std::string_view(raw).substr(0, cut));
    std::this_thread::sleep_for(200us);
    client.send(std::string_view(raw).substr(cut));
    const auto answer = client.read_answer();
    ASSERT_EQ(answer.status, 200) << cut;
    ASSERT_EQ(answer.body, "abcdefg") << cut;
  }
}

TEST(HttpServer, LargeBody) {
  const TestServer server;
  const std::string body(3 << 20, 'z');
  RawClient client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n");
  client.send(body);
  const auto answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.size(), body.size());
  EXPECT_TRUE(answer.body == body);
  for (const size_t bytes : {10U, 5000U, 10U, 100000U, 10U}) {  // the connection goes on, whatever its buffers held
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n" +
                std::string(bytes, 'y'));
    EXPECT_EQ(client.read_answer().body.size(), bytes);
  }
}

TEST(HttpServer, BodyOverTheLimitIsRefusedBeforeItArrives) {
  const TestServer server;
  RawClient with_length(server.port());
  with_length.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n");
  EXPECT_EQ(with_length.read_answer().status, 413);
  EXPECT_TRUE(with_length.closed_within(2000));

  RawClient chunked(server.port());
  chunked.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n");
  EXPECT_EQ(chunked.read_answer().status, 413);
}

TEST(HttpServer, HeadersOverTheLimit) {
  const TestServer server;
  RawClient client(server.port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\nA: " + std::string(70000, 'a'));
  EXPECT_EQ(client.read_answer().status, 431);
}

TEST(HttpServer, ExpectContinue) {
  const TestServer server;
  RawClient client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_answer(true).status, 100);
  client.send("hi");
  EXPECT_EQ(client.read_answer().body, "hi");
}

TEST(HttpServer, TimeOuts) {
  ServerConfig config = test_config();
  config.header_timeout = 0.15;
  config.body_timeout = 0.15;
  config.keep_alive_timeout = 0.3;
  const TestServer server(config);
  RawClient header(server.port()), body(server.port()), idle(server.port());
  header.send("GET /he");
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(header.read_answer().status, 408);
  EXPECT_EQ(body.read_answer().status, 408);
  EXPECT_TRUE(idle.closed_within(2000));
  EXPECT_TRUE(idle.buffered().empty());
}

TEST(HttpServer, ConnectionLimit) {
  ServerConfig config = test_config();
  config.max_connections = 2;
  const TestServer server(config);
  RawClient a(server.port()), b(server.port());
  a.send(kHealth);
  b.send(kHealth);
  EXPECT_EQ(a.read_answer().status, 200);
  EXPECT_EQ(b.read_answer().status, 200);
  RawClient c(server.port());
  EXPECT_EQ(c.read_answer().status, 503);
  a.close();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(server.health(), 200);
}

TEST(HttpServer, HandlerThrows) {
  const TestServer server(test_config(),
                          {{{"GET"}, "/throw", [](const auto&) { throw std::runtime_error("secret 0xdeadbeef"); }},
                           {{"GET"}, "/drop", [](const auto&) {}}});
  RawClient client(server.port());
  client.send("GET /throw HTTP/1.1\r\nHost: x\r\n\r\nGET /drop HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto thrown = client.read_answer();
  EXPECT_EQ(thrown.status, 500);
  EXPECT_EQ(thrown.body.find("secret"), std::string::npos);
  EXPECT_EQ(client.read_answer().status, 500);
}

TEST(HttpServer, StreamFromAnotherThreadAndKeepAlive) {
  std::vector<std::thread> threads;
  const TestServer server(test_config(), {{{"GET"}, "/stream", [&](const std::shared_ptr<HttpExchange>& exchange) {
                                             threads.emplace_back([exchange] {
                                               HttpResponse head;
                                               head.content_type = "text/event-stream";
                                               exchange->begin_stream(head);
                                               for (int i = 0; i < 100; ++i)
                                                 exchange->write("data: " + std::to_string(i) + "\n\n");
                                               exchange->end_stream();
                                             });
                                           }}});
  RawClient client(server.port());
  for (int round = 0; round < 3; ++round) {
    client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    const auto answer = client.read_answer();
    EXPECT_EQ(answer.status, 200);
    std::string all;
    for (int i = 0; i < 100; ++i) all += "data: " + std::to_string(i) + "\n\n";
    EXPECT_EQ(answer.body, all);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HttpServer, DisconnectIsNoticedAtOnce) {
  std::promise<void> gone;
  const TestServer server(test_config(), {{{"GET"}, "/wait", [&](const std::shared_ptr<HttpExchange>& exchange) {
                                             exchange->on_disconnect([&gone, exchange] { gone.set_value(); });
                                           }}});
  RawClient client(server.port());
  client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  std::this_thread::sleep_for(50ms);
  client.close();
  EXPECT_EQ(gone.get_future().wait_for(500ms), std::future_status::ready);
}

TEST(HttpServer, SlowReaderIsDropped) {
  ServerConfig config = test_config();
  config.max_write_buffer = 64 << 10;
  std::promise<void> gone;
  std::atomic<bool> stop{false};
  std::thread writer;
  {
    const TestServer server(config, {{{"GET"}, "/flood", [&](const std::shared_ptr<HttpExchange>& exchange) {
                                        exchange->begin_stream({});
                                        exchange->on_disconnect([&] { gone.set_value(); });
                                        writer = std::thread([&stop, exchange] {
                                          const std::string chunk(16 << 10, 'x');
                                          for (int i = 0; i < 4000 && !stop; ++i) {
                                            exchange->write(chunk);
                                            std::this_thread::sleep_for(50us);
                                          }
                                        });
                                      }}});
    RawClient client(server.port());
    client.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(gone.get_future().wait_for(5s), std::future_status::ready);
    stop = true;
    EXPECT_EQ(server.health(), 200);
    writer.join();
  }
}

TEST(HttpServer, StopLetsAnswersEnd) {
  std::shared_ptr<HttpExchange> held;
  std::promise<void> came;
  TestServer server(test_config(), {{{"GET"}, "/hold", [&](const std::shared_ptr<HttpExchange>& exchange) {
                                       held = exchange;
                                       came.set_value();
                                     }}});
  RawClient busy(server.port()), idle(server.port());
  busy.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  came.get_future().wait();
  auto stopping = std::async(std::launch::async, [&] { server.server->stop(2s); });
  EXPECT_TRUE(idle.closed_within(500));
  std::this_thread::sleep_for(20ms);
  held->respond(text_response("late"));
  held.reset();
  const auto answer = busy.read_answer();
  EXPECT_EQ(answer.body, "late");
  EXPECT_NE(answer.head.find("connection: close"), std::string::npos);
  EXPECT_TRUE(busy.closed_within(1000));
  EXPECT_EQ(stopping.wait_for(1s), std::future_status::ready);
}

TEST(HttpServer, PortInUse) {
  const TestServer server;
  ServerConfig config = test_config();
  config.port = server.port();
  try {
    HttpServer second(config, {});
    second.start();
    FAIL() << "two servers on one port";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnavailable);
    EXPECT_NE(std::string(error.what()).find(std::to_string(config.port)), std::string::npos) << error.what();
  }
}

TEST(HttpServer, UnixSocket) {
  ServerConfig config = test_config();
  config.uds = testing::TempDir() + "/quire_http_test.sock";
  {
    const TestServer server(config);
    EXPECT_THROW(HttpServer(config, {}), Error) << "the path is in use";
    EXPECT_EQ(access(config.uds.c_str(), F_OK), 0);
  }
  EXPECT_NE(access(config.uds.c_str(), F_OK), 0) << "removed at the end";
}

TEST(HttpServer, ManyClients) {
  const TestServer server;
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      RawClient client(server.port());
      for (int i = 0; i < 100; ++i) {
        const std::string body = std::to_string(i);
        client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                    body);
        if (client.read_answer().body == body) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 1600);
}

}  // namespace
}  // namespace quire
