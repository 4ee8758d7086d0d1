// Requests in pieces, and requests behind broken ones.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "test_server.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

nlohmann::json raw_cases() {
  std::ifstream file(QUIRE_TEST_DATA "/server/http_cases.json");
  return nlohmann::json::parse(file);
}

// Statuses of all answers to `raw`, sent in pieces that end at `cuts`, and what the bodies were.
std::string outcome(uint16_t port, std::string_view raw, const std::vector<size_t>& cuts) {
  RawClient client(port);
  size_t sent = 0;
  for (const size_t cut : cuts) {
    if (!client.send(raw.substr(sent, cut - sent))) break;
    sent = cut;
    std::this_thread::yield();
  }
  client.send(raw.substr(sent));
  ::shutdown(client.fd(), SHUT_WR);
  std::string out;
  while (true) {
    const auto answer = client.read_answer(raw.starts_with("HEAD "), 2000);
    if (answer.status == 0) return out;
    out += std::to_string(answer.status) + " " + answer.body + "\n";
  }
}

// The answers depend on the bytes, not on how they come: each case in two pieces at every place, and byte by byte.
TEST(HttpFraming, SameAnswersForEverySplit) {
  constexpr size_t kLongest = 260;
  const TestServer server;
  size_t tried = 0;
  for (const auto& item : raw_cases()) {
    const std::string raw = to_bytes(item["raw"]);
    if (raw.size() > kLongest) continue;
    SCOPED_TRACE(item["id"].get<std::string>());
    const std::string whole = outcome(server.port(), raw, {});
    ASSERT_FALSE(whole.empty());
    std::vector<size_t> every;
    for (size_t cut = 1; cut < raw.size(); ++cut) {
      every.push_back(cut);
      ASSERT_EQ(outcome(server.port(), raw, {cut}), whole) << "cut at " << cut;
    }
    ASSERT_EQ(outcome(server.port(), raw, every), whole) << "byte by byte";
    ++tried;
  }
  EXPECT_GE(tried, 60U);
}

// A server that goes on reading after a framing error serves what an attacker put behind it.
TEST(HttpFraming, NothingIsServedBehindAFramingError) {
  std::atomic<int> served{0};
  const TestServer server(test_config(), {{{"GET"}, "/behind", [&](const std::shared_ptr<HttpExchange>& exchange) {
                                             ++served;
                                             exchange->respond({});
                                           }}});
  const std::string behind = "GET /behind HTTP/1.1\r\nHost: x\r\n\r\n";
  size_t errors = 0;
  for (const auto& item : raw_cases()) {
    if (!item.contains("connection_after")) continue;
    SCOPED_TRACE(item["id"].get<std::string>());
    RawClient client(server.port());
    client.send(to_bytes(item["raw"]) + behind + behind);
    EXPECT_GT(client.read_answer().status, 0);
    EXPECT_TRUE(client.closed_within(2000));
    EXPECT_EQ(client.buffered(), "");
    EXPECT_EQ(served, 0);
    ++errors;
  }
  EXPECT_GE(errors, 25U);
  RawClient client(server.port());
  client.send(behind);
  EXPECT_EQ(client.read_answer().status, 200);
  EXPECT_EQ(served, 1);
}

}  // namespace
}  // namespace quire
