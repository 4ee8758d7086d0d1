// Embeddings of the engine over a model whose states are a hash of the tokens before them (fake_model.h).
#include <gtest/gtest.h>

#include <cmath>

#include "ahead_device.h"
#include "base/error.h"
#include "engine/stats.h"
#include "fake_model.h"

namespace quire {
namespace {

GenerateRequest embed(std::vector<int32_t> prompt, Pooling pooling) {
  GenerateRequest request;
  request.prompt_ids = std::move(prompt);
  request.pooling = pooling;
  return request;
}

// The sum in double, token by token: the order that engine/pooling.h promises.
std::vector<float> expected_embedding(std::span<const int32_t> tokens, Pooling pooling) {
  if (pooling == Pooling::kLast) return FakeModel::state(tokens);
  std::vector<double> sum(FakeModel::kHidden);
  for (size_t n = 1; n <= tokens.size(); ++n) {
    const std::vector<float> state = FakeModel::state(tokens.first(n));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(state[i]);
  }
  std::vector<float> mean(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) {
    mean[i] = static_cast<float>(sum[i] / static_cast<double>(tokens.size()));
  }
  return mean;
}

std::vector<float> embedding_of(const Generation& generation) {
  return {generation.embedding().begin(), generation.embedding().end()};
}

TEST(Pooling, OneEventEndsItAndTheStateIsTheModels) {
  FakeEngine fake;
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    for (const int length : {1, 2, 16, 63, 64, 65, 200, 256}) {  // of 64 tokens in a step and 256 in the context
      const auto prompt = FakeEngine::prompt(length, length);
      const auto generation = fake.engine->submit(embed(prompt, pooling));
      const Answer answer(*generation);
      EXPECT_EQ(answer.finish[0], FinishReason::kStop);
      EXPECT_TRUE(answer.tokens[0].empty());
      EXPECT_EQ(embedding_of(*generation), expected_embedding(prompt, pooling)) << length;
    }
  }
  fake.expect_quiet();
}

TEST(Pooling, BesideOthersInFewBlocksNothingChanges) {
  for (const bool ahead : {false, true}) {
    EngineConfig config = FakeEngine::small_config();
    config.num_gpu_blocks_override = 24;
    config.max_num_batched_tokens = 48;
    std::unique_ptr<EngineDevice> device = make_cpu_device(std::make_unique<ThreadPool>(2));
    if (ahead) device = std::make_unique<AheadDevice>(std::move(device));
    FakeEngine fake(config, std::move(device));
    struct Item {
      std::shared_ptr<Generation> generation;
      std::vector<int32_t> prompt;
      Pooling pooling;
    };
    std::vector<Item> items;
    for (int i = 0; i < 90; ++i) {
      const auto pooling = static_cast<Pooling>(i % 3);
      auto prompt = FakeEngine::prompt(1 + i * 7 % 190, i % 4);
      auto request = pooling == Pooling::kNone ? FakeEngine::greedy(prompt, 40) : embed(prompt, pooling);
      items.push_back({fake.engine->submit(std::move(request)), std::move(prompt), pooling});
    }
    for (const Item& item : items) {
      const Answer answer(*item.generation);
      if (item.pooling == Pooling::kNone) {
        EXPECT_EQ(answer.tokens[0], FakeModel::expected(item.prompt, 40));
        EXPECT_TRUE(item.generation->embedding().empty());
      } else {
        EXPECT_EQ(embedding_of(*item.generation), expected_embedding(item.prompt, item.pooling));
      }
    }
    EXPECT_GT(fake.engine->metrics().snapshot().preemptions, 0);
    fake.expect_quiet();
  }
}

TEST(Pooling, TheLastStateMayUseThePrefixCacheAMeanMayNot) {
  FakeEngine fake;
  const auto prompt = FakeEngine::prompt(100, 1);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast, Pooling::kMean}) {
    const int64_t before = fake.controls->tokens;
    const auto generation = fake.engine->submit(embed(prompt, pooling));
    const Answer answer(*generation);
    EXPECT_EQ(embedding_of(*generation), expected_embedding(prompt, pooling));
    EXPECT_EQ(generation->cached_tokens(), pooling == Pooling::kLast ? 96 : 0);
    EXPECT_EQ(fake.controls->tokens - before, pooling == Pooling::kLast ? 4 : 100);
  }
}

TEST(Pooling, StatesOfAStepAreLimited) {
  EngineConfig config = FakeEngine::small_config();
  config.max_model_len = 0;
  config.num_gpu_blocks_override = 512;
  config.max_num_batched_tokens = 4096;
  FakeEngine fake(config);
  int64_t most = 0;
  fake.controls->before_forward = [&](const StepInput& input) { most = std::max(most, std::ssize(input.hidden_rows)); };
  std::vector<std::shared_ptr<Generation>> running;
  for (int i = 0; i < 8; ++i) {
    running.push_back(fake.engine->submit(embed(FakeEngine::prompt(500, i), Pooling::kMean)));
    running.push_back(fake.engine->submit(embed(FakeEngine::prompt(500, i), Pooling::kLast)));
  }
  for (size_t i = 0; i < running.size(); ++i) {
    const Answer answer(*running[i]);
    const auto prompt = FakeEngine::prompt(500, static_cast<int>(i / 2));
    EXPECT_EQ(embedding_of(*running[i]), expected_embedding(prompt, i % 2 == 0 ? Pooling::kMean : Pooling::kLast));
  }
  EXPECT_GT(most, 500);
  EXPECT_LE(most, kMeanPoolingRows + 16);
}

TEST(Pooling, WhatGoesWrongFailsTheRequestAlone) {
  FakeEngine fake;
  auto poisoned = FakeEngine::prompt(40, 1), hollow = FakeEngine::prompt(40, 2);
  hollow[39] = FakeModel::kNan;
  const auto bad = fake.engine->submit(embed(hollow, Pooling::kMean));
  EXPECT_EQ(Answer(*bad).finish[0], FinishReason::kError);
  poisoned[5] = FakeModel::kPoison;
  const auto failed = fake.engine->submit(embed(poisoned, Pooling::kMean));
  EXPECT_EQ(Answer(*failed).finish[0], FinishReason::kError);
  const auto good = fake.engine->submit(embed(FakeEngine::prompt(40, 3), Pooling::kMean));
  EXPECT_EQ(Answer(*good).finish[0], FinishReason::kStop);

  fake.controls->hold = true;
  const auto cancelled = fake.engine->submit(embed(FakeEngine::prompt(200, 3), Pooling::kMean));
  cancelled->cancel();
  fake.release();
  EXPECT_EQ(Answer(*cancelled).finish[0], FinishReason::kAbort);
  fake.expect_quiet();
  for (const int length : {0, 257}) {
    EXPECT_THROW(fake.engine->submit(embed(FakeEngine::prompt(length, 1), Pooling::kLast)), Error) << length;
  }
}

}  // namespace
}  // namespace quire
