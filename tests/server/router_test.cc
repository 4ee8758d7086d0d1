// Keys, host names, cross-origin rules and paths, through a server on a loopback socket.
#include <gtest/gtest.h>

#include <set>

#include "test_server.h"

namespace quire {
namespace {

RawClient::Answer ask(const TestServer& server, const std::string& request) {
  RawClient client(server.port());
  client.send(request + "\r\n");
  return client.read_answer();
}

TEST(Router, KeysGuardEveryPathButHealth) {
  ServerConfig config = test_config();
  config.api_keys = {"one", "two"};
  const TestServer server(config);
  const auto status = [&](const std::string& path, const std::string& header) {
    RawClient client(server.port());
    client.send("GET " + path + " HTTP/1.1\r\nHost: x\r\n" + header + "\r\n");
    return client.read_answer();
  };
  EXPECT_EQ(status("/health", "").status, 200);
  for (const char* path : {"/echo", "/metrics", "/nowhere"}) {
    for (const char* header :
         {"", "Authorization: Bearer \r\n", "Authorization: Bearer thre\r\n", "Authorization: Bearer onetwo\r\n",
          "Authorization: Bearer one, and much more of it\r\n", "Authorization: one\r\n"}) {
      const auto answer = status(path, header);
      EXPECT_EQ(answer.status, 401) << path << header;
      EXPECT_EQ(answer.body, R"({"error":"Unauthorized"})");
    }
  }
  EXPECT_EQ(status("/nowhere", "Authorization: Bearer one\r\n").status, 404);
  EXPECT_EQ(status("/nowhere", "Authorization: bearer two\r\n").status, 404);
}

TEST(Router, CrossOrigin) {
  ServerConfig config = test_config();
  config.allowed_origins = {"http://a"};
  const TestServer server(config);
  const auto ask = [&](const std::string& request) {
    RawClient client(server.port());
    client.send(request + "\r\n");
    return client.read_answer();
  };
  const auto good =
      ask("OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: http://a\r\nAccess-Control-Request-Method: POST\r\n");
  EXPECT_EQ(good.status, 200);
  EXPECT_NE(good.head.find("Access-Control-Allow-Origin: http://a"), std::string::npos);
  EXPECT_EQ(
      ask("OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: http://b\r\nAccess-Control-Request-Method: POST\r\n").status,
      400);
  EXPECT_NE(ask("GET /health HTTP/1.1\r\nHost: x\r\nOrigin: http://a\r\n").head.find("Access-Control-Allow-Origin"),
            std::string::npos);
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: x\r\nOrigin: http://b\r\n").head.find("Access-Control"),
            std::string::npos);
}

TEST(Router, RootPath) {
  ServerConfig config = test_config();
  config.root_path = "/llm/";
  const TestServer server(config);
  for (const char* path : {"/llm/health", "/health"}) {
    RawClient client(server.port());
    client.send(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(client.read_answer().status, 200) << path;
  }
}

TEST(Router, HostsOnLoopback) {
  ServerConfig config = test_config();
  config.allowed_hosts.clear();
  const TestServer server(config);
  const auto status = [&](const std::string& host) {
    return ask(server, "GET /health HTTP/1.1\r\nHost: " + host + "\r\n").status;
  };
  for (const char* host :
       {"localhost", "LOCALHOST:80", "localhost.", "127.0.0.1", "127.0.0.1:8000", "127.1.2.3", "[::1]", "[::1]:8000"}) {
    EXPECT_EQ(status(host), 200) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
                           "x@localhost.evil.example", "10.0.0.1", "[::2]:8000", "0.0.0.0", "localhost..", "[", "[]",
                           ":", ".", "127.0.0.1:1:2"}) {
    EXPECT_EQ(status(host), 403) << host;
  }
  EXPECT_EQ(ask(server, "GET /health HTTP/1.0\r\n").status, 200) << "no web page sends that";
  const auto answer = ask(server, "POST /v1/completions HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n");
  EXPECT_EQ(answer.status, 403);
  EXPECT_NE(answer.body.find("--allowed-hosts"), std::string::npos) << answer.body;
}

TEST(Router, HostsByName) {
  ServerConfig config = test_config();
  const auto accepts = [&](const char* host) { return HostCheck(config).accepts(host); };
  config.allowed_hosts = {"Api.Example.com", "[fd00::1]"};
  for (const char* bind : {"127.0.0.1", "0.0.0.0"}) {
    config.host = bind;
    EXPECT_TRUE(accepts("api.example.com:443"));
    EXPECT_TRUE(accepts("[fd00::1]:443"));
    EXPECT_TRUE(accepts("localhost"));
    EXPECT_FALSE(accepts("example.com"));
    EXPECT_FALSE(accepts("api.example.com.evil.example"));
  }
  config.allowed_hosts = {"*"};
  EXPECT_TRUE(accepts("evil.example"));
  config.allowed_hosts.clear();
  EXPECT_TRUE(accepts("evil.example")) << "bound to all addresses: names are not known";
  config.host = "::1";
  EXPECT_FALSE(accepts("evil.example"));
  config.uds = "/tmp/x.sock";
  EXPECT_TRUE(accepts("evil.example")) << "no web page reaches a Unix socket";
}

TEST(Router, RequestIds) {
  ServerConfig config = test_config();
  config.enable_request_id_headers = true;
  const TestServer server(config, {{{"GET"}, "/own", [](const std::shared_ptr<HttpExchange>& exchange) {
                                      HttpResponse response;
                                      response.headers.emplace_back("x-request-id", "of-the-handler");
                                      exchange->respond(std::move(response));
                                    }}});
  const auto id_of = [](const RawClient::Answer& answer) {
    const size_t at = answer.head.find("X-Request-Id: ");
    return at == std::string::npos ? std::string() : answer.head.substr(at + 14, answer.head.find('\r', at) - at - 14);
  };
  EXPECT_EQ(id_of(ask(server, "GET /health HTTP/1.1\r\nHost: x\r\nx-request-id: abc\r\n")), "abc");
  EXPECT_EQ(id_of(ask(server, "GET /nowhere HTTP/1.1\r\nHost: x\r\nX-Request-ID: a-1\r\n")), "a-1");
  std::set<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.insert(id_of(ask(server, "GET /health HTTP/1.1\r\nHost: x\r\n")));
  EXPECT_EQ(ids.size(), 3U);
  EXPECT_EQ(ids.begin()->size(), 32U);
  EXPECT_EQ(ids.count(id_of(
                ask(server, "GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + std::string(200, 'a') + "\r\n"))),
            0U)
      << "one that is too long is not echoed";
  const auto own = ask(server, "GET /own HTTP/1.1\r\nHost: x\r\n");
  EXPECT_NE(own.head.find("x-request-id: of-the-handler"), std::string::npos);
  EXPECT_EQ(id_of(own), "");
}

}  // namespace
}  // namespace quire
