// The whole engine over a model that is a hash (fake_model.h): answers, stops, prefix cache, priorities, cancelling.
#include "engine/engine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <random>
#include <thread>

#include "base/error.h"
#include "engine/stats.h"
#include "fake_model.h"

namespace quire {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

TEST(Engine, AnswersWithTheTokensOfTheModel) {
  FakeEngine fake;
  const auto prompt = FakeEngine::prompt(150, 1);  // three chunks of 64
  const auto generation = fake.engine->submit(FakeEngine::greedy(prompt, 20));
  const Answer answer(*generation);
  EXPECT_EQ(answer.tokens[0], FakeModel::expected(prompt, 20));
  EXPECT_EQ(answer.finish[0], FinishReason::kLength);
  fake.expect_quiet();
}

TEST(Engine, LoadedAnswersAreThoseOfUnloadedRuns) {
  EngineConfig config = FakeEngine::small_config();
  config.num_gpu_blocks_override = 24;  // far too few for all of them
  config.max_num_batched_tokens = 16;
  FakeEngine fake(config);
  std::mt19937 random(3);
  std::vector<std::pair<std::shared_ptr<Generation>, std::vector<int32_t>>> running;
  for (int i = 0; i < 60; ++i) {
    auto prompt = FakeEngine::prompt(1 + static_cast<int>(random() % 200), static_cast<int>(random() % 4));
    running.emplace_back(fake.engine->submit(FakeEngine::greedy(prompt, 40)), prompt);
  }
  for (auto& [generation, prompt] : running) {
    const Answer answer(*generation);
    EXPECT_EQ(answer.tokens[0], FakeModel::expected(prompt, 40));
  }
  EXPECT_GT(fake.engine->metrics().snapshot().preemptions, 0);
  EXPECT_GT(fake.engine->metrics().snapshot().prefix_cache_hits, 0);
  fake.expect_quiet();
}

TEST(Engine, TheContextIsNoLongerThanTheCacheUnlessAskedFor) {
  EngineConfig config = FakeEngine::small_config();
  config.num_gpu_blocks_override = 8;
  config.max_model_len = 0;  // the model's: 512
  EXPECT_EQ(FakeEngine(config).engine->max_model_len(), 8 * 16);
  config.max_model_len = 8 * 16 + 1;
  try {
    const FakeEngine fake(config);
    FAIL() << "it does not fit";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResourceExhausted);
    EXPECT_EQ(error.param(), "max-model-len");
  }
}

TEST(Engine, SeededChoicesDifferAndRepeatUnderLoad) {
  std::vector<std::vector<int32_t>> alone;
  for (const bool loaded : {false, true}) {
    EngineConfig config = FakeEngine::small_config();
    config.num_gpu_blocks_override = 40;
    FakeEngine fake(config);
    std::vector<std::shared_ptr<Generation>> others;
    for (int i = 0; loaded && i < 20; ++i) {
      others.push_back(fake.engine->submit(FakeEngine::greedy(FakeEngine::prompt(70, i), 100)));
    }
    GenerateRequest request = FakeEngine::greedy(FakeEngine::prompt(20, 1), 60);
    request.params.temperature = 2;
    // Two rivals close behind the best, and none of the tokens that mean trouble.
    request.params.logit_bias = {
        {5, 17.0f}, {6, 17.0f}, {FakeModel::kEos, -100.0f}, {FakeModel::kPoison, -100.0f}, {FakeModel::kNan, -100.0f}};
    request.params.n = 4;
    request.params.seed = 42;
    const auto generation = fake.engine->submit(std::move(request));
    const Answer answer(*generation, 4);
    for (size_t i = 1; i < 4; ++i) EXPECT_NE(answer.tokens[0], answer.tokens[i]);
    if (loaded) {
      EXPECT_EQ(answer.tokens, alone);
    } else {
      alone = answer.tokens;
    }
  }
}

TEST(Engine, StopsAtEosAndStopTokens) {
  FakeEngine fake;
  const auto prompt = FakeEngine::prompt(30, 2);
  const auto expected = FakeModel::expected(prompt, 8);
  {
    GenerateRequest request = FakeEngine::greedy(prompt, 8);
    request.params.stop_token_ids = {expected[3]};
    const auto generation = fake.engine->submit(request);
    const Answer answer(*generation);
    const size_t first =
        static_cast<size_t>(std::find(expected.begin(), expected.end(), expected[3]) - expected.begin());
    EXPECT_EQ(answer.tokens[0].size(), first + 1);
    EXPECT_EQ(answer.finish[0], FinishReason::kStop);
    EXPECT_EQ(answer.last[0].stop_token_id, expected[3]);
  }
  GenerateRequest request = FakeEngine::greedy(prompt, 8);
  request.params.logit_bias = {{FakeModel::kEos, 100.0f}};
  {
    const auto generation = fake.engine->submit(request);
    const Answer answer(*generation);
    EXPECT_EQ(answer.tokens[0], std::vector<int32_t>{FakeModel::kEos});
    EXPECT_EQ(answer.finish[0], FinishReason::kStop);
    EXPECT_EQ(answer.last[0].stop_token_id, std::nullopt);
  }
  request.params.stop_token_ids = {FakeModel::kEos};  // named as well: it still is EOS
  {
    const auto generation = fake.engine->submit(request);
    EXPECT_EQ(Answer(*generation).last[0].stop_token_id, std::nullopt);
  }
  request.params.stop_token_ids = {};
  request.params.min_tokens = 3;  // EOS is masked until then
  {
    const auto generation = fake.engine->submit(request);
    const Answer answer(*generation);
    ASSERT_EQ(answer.tokens[0].size(), 4);
    EXPECT_EQ(answer.tokens[0][3], FakeModel::kEos);
  }
  request.params.ignore_eos = true;
  const auto generation = fake.engine->submit(request);
  const Answer answer(*generation);
  EXPECT_EQ(answer.tokens[0], std::vector<int32_t>(8, FakeModel::kEos));
  EXPECT_EQ(answer.finish[0], FinishReason::kLength);
}

TEST(Engine, PromptLogprobsTwiceTheSameBesideANeighbour) {
  FakeEngine fake;
  const auto prompt = FakeEngine::prompt(133, 0);  // more than a step of 64
  std::vector<float> first;
  for (int round = 0; round < 2; ++round) {
    GenerateRequest request = FakeEngine::greedy(prompt, round == 0 ? 1 : 0);
    request.params.prompt_logprobs = 1;
    const auto neighbour = fake.engine->submit(FakeEngine::greedy(prompt, 5));
    const auto generation = fake.engine->submit(std::move(request));
    const Answer answer(*generation);
    EXPECT_EQ(answer.finish[0], FinishReason::kLength);
    EXPECT_EQ(answer.tokens[0].size(), round == 0 ? 1 : 0);
    EXPECT_EQ(generation->cached_tokens(), 0);
    const auto& logprobs = generation->prompt_logprobs();
    ASSERT_EQ(logprobs.size(), prompt.size());
    EXPECT_FALSE(logprobs[0]);
    std::vector<float> values;
    for (size_t i = 1; i < prompt.size(); ++i) {
      ASSERT_TRUE(logprobs[i]) << i;
      EXPECT_EQ(logprobs[i]->token.id, prompt[i]);
      ASSERT_EQ(logprobs[i]->top.size(), 1);
      EXPECT_EQ(logprobs[i]->top[0].id, FakeModel::next_token(std::span(prompt).first(i))) << i;
      values.push_back(logprobs[i]->token.logprob);
    }
    if (round == 0) first = values;
    EXPECT_EQ(values, first);
    EXPECT_EQ(Answer(*neighbour).tokens[0], FakeModel::expected(prompt, 5));
  }
}

// Prompts of every length around the block size, twice: the second finds all full blocks but the one with the last
// token.
TEST(Engine, RepeatedPromptsHitTheCacheAndAnswerTheSame) {
  FakeEngine fake;
  for (const int length : {1, 15, 16, 17, 31, 32, 33, 48}) {
    const auto prompt = FakeEngine::prompt(length, length);
    for (int round = 0; round < 2; ++round) {
      const auto generation = fake.engine->submit(FakeEngine::greedy(prompt, 8));
      EXPECT_EQ(Answer(*generation).tokens[0], FakeModel::expected(prompt, 8));
      EXPECT_EQ(generation->cached_tokens(), round == 0 ? 0 : (length - 1) / 16 * 16) << length;
    }
  }
  fake.engine->reset_prefix_cache();
  const auto generation = fake.engine->submit(FakeEngine::greedy(FakeEngine::prompt(48, 48), 1));
  const Answer answer(*generation);
  EXPECT_EQ(generation->cached_tokens(), 0);
}

// Clients that go away at any moment: before the first step, in the middle of a prompt, in the last step, after the
// end.
TEST(Engine, CancelledRequestsLeaveNothingBehind) {
  EngineConfig config = FakeEngine::small_config();
  config.num_gpu_blocks_override = 24;
  FakeEngine fake(config);
  std::mt19937 random(5);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::shared_ptr<Generation>> all;
    std::vector<std::vector<int32_t>> prompts;
    for (int i = 0; i < 200; ++i) {
      prompts.push_back(FakeEngine::prompt(40, static_cast<int>(random() % 50)));
      all.push_back(fake.engine->submit(FakeEngine::greedy(prompts.back(), 4)));
      if (random() % 3 == 0) {
        const size_t victim = random() % all.size();
        if (!all[victim]) continue;
        if (random() % 2 == 0) all[victim]->cancel();  // and then the last reference goes
        all[victim].reset();
      }
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i]) {
        EXPECT_EQ(Answer(*all[i]).tokens[0], FakeModel::expected(prompts[i], 4));
      }
    }
    fake.expect_quiet();
  }
}

TEST(Engine, CancelEndsAllChoicesAndStopChoiceOne) {
  FakeEngine fake;
  fake.controls->step_ms = 1;
  GenerateRequest request = FakeEngine::greedy(FakeEngine::prompt(10, 1), 200);
  request.params.temperature = 1;
  request.params.n = 3;
  const auto cancelled = fake.engine->submit(request);
  std::vector<GenerationEvent> events;
  while (events.empty()) ASSERT_TRUE(cancelled->wait(events, milliseconds(100)));
  cancelled->cancel();
  const Answer answer(*cancelled, 3);
  EXPECT_EQ(answer.finish, std::vector<FinishReason>(3, FinishReason::kAbort));

  request.params.max_tokens = 30;
  const auto stopped = fake.engine->submit(request);
  events.clear();
  while (events.empty()) ASSERT_TRUE(stopped->wait(events, milliseconds(100)));
  stopped->stop_choice(1);
  const Answer rest(*stopped, 3);
  EXPECT_EQ(rest.finish[0], FinishReason::kLength);
  EXPECT_EQ(rest.finish[1], FinishReason::kNone) << "no event comes after the stop";
  EXPECT_EQ(rest.finish[2], FinishReason::kLength);
  fake.expect_quiet();
}

TEST(Engine, AnIdleEngineSleeps) {
  FakeEngine fake;
  const auto cpu_us = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * int64_t{1000000} + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  const auto generation = fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 5));
  EXPECT_EQ(Answer(*generation).finish[0], FinishReason::kLength);
  std::this_thread::sleep_for(milliseconds(20));
  const int64_t before = cpu_us();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LT(cpu_us() - before, 10000);
  EXPECT_TRUE(fake.engine->healthy());
}

TEST(Engine, ListenersHearOfEveryStep) {
  FakeEngine fake;
  const auto generation = fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 50));
  std::atomic<int> calls{0};
  generation->set_listener([&] { ++calls; });
  std::vector<GenerationEvent> events;
  while (generation->wait(events, milliseconds(100))) {
  }
  EXPECT_EQ(events.size(), 50);
  EXPECT_GE(calls, 1);
  generation->set_listener([&] { calls = -1; });  // called at once: it has ended
  EXPECT_EQ(calls, -1);
}

TEST(Engine, PrioritiesDecideWhoRunsFirst) {
  EngineConfig config = FakeEngine::small_config();
  config.scheduling_policy = "priority";
  config.max_num_seqs = 1;
  FakeEngine fake(config);
  fake.controls->step_ms = 1;
  const auto first = fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 30));
  GenerateRequest low = FakeEngine::greedy({4, 5}, 30), high = FakeEngine::greedy({6, 7}, 30);
  low.priority = 5;
  high.priority = -5;
  const auto low_generation = fake.engine->submit(std::move(low));
  const auto high_generation = fake.engine->submit(std::move(high));
  EXPECT_EQ(Answer(*high_generation).finish[0], FinishReason::kLength);
  std::vector<GenerationEvent> events;
  low_generation->poll(events);
  EXPECT_LT(events.size(), 30);
  EXPECT_EQ(Answer(*low_generation).finish[0], FinishReason::kLength);
  EXPECT_EQ(Answer(*first).finish[0], FinishReason::kLength);
}

}  // namespace
}  // namespace quire
