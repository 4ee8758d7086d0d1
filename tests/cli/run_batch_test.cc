#include "cli/run_batch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

using Json = nlohmann::json;

std::string line(const std::string& id, const std::string& body = "{}") {
  return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions","body":)" + body + "}\n";
}

std::vector<Json> entries(const std::string& text) {
  std::vector<Json> out;
  std::istringstream in(text);
  for (std::string entry; std::getline(in, entry);) out.push_back(Json::parse(entry));
  return out;
}

void answer(const std::shared_ptr<HttpExchange>& exchange) {
  HttpResponse response;
  response.body = "{}";
  exchange->respond(std::move(response));
}

TEST(RunBatch, LinesOutsideTheLimitsOfJsonAreRefused) {
  const size_t depth = 200'000;
  std::istringstream in(line("deep", std::string(depth, '[') + std::string(depth, ']')) + "[1]\n" + line("good"));
  std::ostringstream out;
  WorkThread thread;
  const BatchCounts counts = run_batch(in, out, answer, thread, 4);
  EXPECT_EQ(counts.requests, 3);
  EXPECT_EQ(counts.failed, 2);
  const std::vector<Json> all = entries(out.str());
  ASSERT_EQ(all.size(), 3);
  EXPECT_NE(all[0]["error"]["message"].get<std::string>().find("nested deeper than 64"), std::string::npos) << all[0];
  EXPECT_NE(all[1]["error"]["message"].get<std::string>().find("got array"), std::string::npos) << all[1];
  EXPECT_EQ(all[2]["response"]["status_code"], 200);
}

TEST(RunBatch, AnyExceptionOfTheHandlerIsAnAnswer) {
  std::istringstream in(line("a") + line("b"));
  std::ostringstream out;
  WorkThread thread;
  const auto handler = [](const std::shared_ptr<HttpExchange>&) { throw std::runtime_error("unforeseen"); };
  EXPECT_EQ(run_batch(in, out, handler, thread, 1).failed, 2);
  for (const Json& entry : entries(out.str())) EXPECT_EQ(entry["response"]["status_code"], 500);
}

// What is posted may throw; the request that is let go by that is answered.
TEST(RunBatch, AnExceptionOnTheThreadEndsOneRequest) {
  std::istringstream in(line("a", R"({"bad":true})") + line("b"));
  std::ostringstream out;
  WorkThread thread;
  const auto handler = [](const std::shared_ptr<HttpExchange>& exchange) {
    const bool bad = exchange->take_body() == R"({"bad":true})";
    exchange->post([exchange, bad] { bad ? throw std::runtime_error("unforeseen") : answer(exchange); });
  };
  EXPECT_EQ(run_batch(in, out, handler, thread, 1).failed, 1);
  const std::vector<Json> all = entries(out.str());
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[0]["response"]["status_code"], 500);
  EXPECT_EQ(all[1]["response"]["status_code"], 200);
}

// However a batch ends, what its requests hold is gone when it has.
TEST(RunBatch, NothingIsAtWorkAfterTheEnd) {
  struct Alive {
    explicit Alive(std::atomic<int>& count) : count_(count) { ++count_; }
    ~Alive() {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      --count_;
    }
    std::atomic<int>& count_;
  };
  constexpr size_t kTooLong = (size_t{64} << 20) + 1;
  for (const bool broken : {false, true}) {
    std::istringstream in(line("a") + line("b") + (broken ? std::string(kTooLong, 'x') : ""));
    std::ostringstream out;
    WorkThread thread;
    std::atomic<int> alive = 0;
    const auto handler = [&](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->on_disconnect([kept = std::make_shared<Alive>(alive)] {});
      exchange->post([exchange] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        answer(exchange);
      });
    };
    if (broken) {
      EXPECT_THROW(run_batch(in, out, handler, thread, 4), Error);
    } else {
      EXPECT_EQ(run_batch(in, out, handler, thread, 4).failed, 0);
    }
    EXPECT_EQ(alive, 0);
    EXPECT_EQ(entries(out.str()).size(), 2);
  }
}

}  // namespace
}  // namespace quire
