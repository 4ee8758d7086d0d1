// Engines whose steps overlap: a token is known one step late, and nobody can tell.
#include <gtest/gtest.h>

#include <random>

#include "ahead_device.h"
#include "base/error.h"
#include "fake_model.h"

namespace quire {
namespace {

// A fake engine over a device that runs ahead.
class RunAhead : public testing::Test {
 protected:
  FakeEngine& start(EngineConfig config = FakeEngine::small_config()) {
    auto device = std::make_unique<AheadDevice>(make_cpu_device(std::make_unique<ThreadPool>(2)));
    device_ = device.get();
    fake_ = std::make_unique<FakeEngine>(std::move(config), std::move(device));
    return *fake_;
  }
  void TearDown() override {
    if (fake_ == nullptr) return;
    fake_->expect_quiet();
    EXPECT_EQ(device_->runner->most_under_way, 2u) << "nothing ran ahead";
  }

  AheadDevice* device_ = nullptr;
  std::unique_ptr<FakeEngine> fake_;
};

TEST_F(RunAhead, AnswersAreThoseOfTheModel) {
  FakeEngine& fake = start();
  const auto prompt = FakeEngine::prompt(150, 1);
  const Answer answer(*fake.engine->submit(FakeEngine::greedy(prompt, 20)));
  EXPECT_EQ(answer.tokens[0], FakeModel::expected(prompt, 20));
  EXPECT_EQ(answer.finish[0], FinishReason::kLength);
}

TEST_F(RunAhead, LoadedAnswersAreThoseOfUnloadedRuns) {
  EngineConfig config = FakeEngine::small_config();
  config.num_gpu_blocks_override = 24;  // far too few for all of them
  config.max_num_batched_tokens = 16;
  FakeEngine& fake = start(config);
  std::mt19937 random(3);
  std::vector<std::pair<std::shared_ptr<Generation>, std::vector<int32_t>>> running;
  for (int i = 0; i < 60; ++i) {
    auto prompt = FakeEngine::prompt(1 + static_cast<int>(random() % 200), static_cast<int>(random() % 4));
    running.emplace_back(fake.engine->submit(FakeEngine::greedy(prompt, 40)), prompt);
    if (i % 7 == 6) running[static_cast<size_t>(i - 3)].first->cancel();
  }
  for (size_t i = 0; i < running.size(); ++i) {
    if (i % 7 == 3) continue;  // cancelled
    const Answer answer(*running[i].first);
    EXPECT_EQ(answer.tokens[0], FakeModel::expected(running[i].second, 40)) << i;
  }
  EXPECT_GT(fake.engine->metrics().snapshot().preemptions, 0);
  EXPECT_GT(fake.engine->metrics().snapshot().prefix_cache_hits, 0);
}

// The step after the stop token is under way when it is found: its token goes to nobody.
TEST_F(RunAhead, NothingFollowsAStopToken) {
  FakeEngine& fake = start();
  for (int salt = 0; salt < 20; ++salt) {
    const auto prompt = FakeEngine::prompt(10 + salt, salt);
    const std::vector<int32_t> whole = FakeModel::expected(prompt, 40);
    GenerateRequest request = FakeEngine::greedy(prompt, 40);
    request.params.stop_token_ids = {whole[5]};
    const Answer answer(*fake.engine->submit(std::move(request)));
    const auto first = std::find(whole.begin(), whole.end(), whole[5]);
    EXPECT_EQ(answer.tokens[0], std::vector<int32_t>(whole.begin(), first + 1));
    EXPECT_EQ(answer.finish[0], FinishReason::kStop);
  }
}

TEST_F(RunAhead, AFailedStepFailsItsRequestsOnly) {
  FakeEngine& fake = start();
  const auto prompt = FakeEngine::prompt(30, 2);
  const auto good = fake.engine->submit(FakeEngine::greedy(prompt, 60));
  {
    const Answer first(*fake.engine->submit(FakeEngine::greedy(FakeEngine::prompt(5, 1), 3)));
    EXPECT_EQ(first.finish[0], FinishReason::kLength);
  }
  fake.controls->hold = true;
  const auto bad = fake.engine->submit(FakeEngine::greedy({1, 2, FakeModel::kPoison}, 5));
  fake.release();
  const Answer failed(*bad);
  EXPECT_EQ(failed.finish[0], FinishReason::kError);
  // The good one may have shared the step; whatever it got is right.
  const Answer answer(*good);
  const std::vector<int32_t> expected = FakeModel::expected(prompt, 60);
  EXPECT_TRUE(std::equal(answer.tokens[0].begin(), answer.tokens[0].end(), expected.begin()));
  // And the engine goes on.
  const Answer after(*fake.engine->submit(FakeEngine::greedy(prompt, 20)));
  EXPECT_EQ(after.tokens[0], FakeModel::expected(prompt, 20));
}

}  // namespace
}  // namespace quire
