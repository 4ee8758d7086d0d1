#include "engine/stats_line.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

using std::chrono::seconds;

class StatsLineTest : public testing::Test {
 protected:
  static EngineClock::time_point at(int second) { return EngineClock::time_point{} + seconds(second); }
  static EngineMetrics::Snapshot totals(int64_t prompt_tokens, int64_t generation_tokens) {
    EngineMetrics::Snapshot s;
    s.prompt_tokens = prompt_tokens;
    s.generation_tokens = generation_tokens;
    s.total_blocks = 8;
    s.free_blocks = 6;
    s.prefix_cache_queries = 4;
    s.prefix_cache_hits = 1;
    return s;
  }
  static bool says(const std::optional<std::string>& line, const std::string& what) {
    return line && line->find(what) != std::string::npos;
  }
};

TEST_F(StatsLineTest, MeasuresFromTheLastLine) {
  StatsLine line("CPU", at(0));
  EXPECT_EQ(line.take(totals(100, 10), at(9)), std::nullopt) << "not yet";
  EXPECT_EQ(
      *line.take(totals(200, 20), at(10)),
      "Engine 000: Avg prompt throughput: 20.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 0 reqs, "
      "Waiting: 0 reqs, CPU KV cache usage: 25.0%, Prefix cache hit rate: 25.0%");
  EXPECT_EQ(line.take(totals(300, 30), at(19)), std::nullopt);
  EXPECT_TRUE(says(line.take(totals(400, 220), at(30)),
                   "Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 10.0"));
}

TEST_F(StatsLineTest, LeavesOutTheTimeThatTheEngineSlept) {
  StatsLine line("CPU", at(0));
  line.restart(at(100));  // the first request
  EXPECT_EQ(line.take(totals(50, 0), at(101)), std::nullopt);
  EXPECT_TRUE(says(line.take(totals(50, 100), at(110)),
                   "Avg prompt throughput: 5.0 tokens/s, Avg generation throughput: 10.0"));
}

TEST_F(StatsLineTest, SaysNothingWithoutTokensAndIsThenNeverDue) {
  StatsLine line("CPU", at(0));
  EXPECT_EQ(line.due(totals(0, 0)), std::nullopt);
  EXPECT_EQ(line.take(totals(0, 0), at(50)), std::nullopt);
  EXPECT_EQ(line.due(totals(1, 0)), at(60)) << "tokens that no line has told of";
  EXPECT_NE(line.take(totals(1, 0), at(60)), std::nullopt);
  EXPECT_EQ(line.due(totals(1, 0)), std::nullopt);
}

}  // namespace
}  // namespace quire
