#include "sample/gpu_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "sample/logits_rules.h"

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kVocab = 40;

struct Buffers {
  std::vector<gpu::SampleRow> rows;
  std::vector<int32_t> tokens, ids, bias_ids;
  std::vector<float> bias_values;
  explicit Buffers(const GpuRowSizes& sizes)
      : rows(sizes.rows), tokens(sizes.tokens), ids(sizes.ids), bias_ids(sizes.biases), bias_values(sizes.biases) {}
  GpuRowBuffers views() { return {rows, tokens, ids, bias_ids, bias_values}; }
};

// What a row's rules do to logits, straight from its description.
std::vector<float> ruled(std::vector<float> logits, const gpu::SampleRow& row, const Buffers& buffers) {
  const auto at = [](int32_t i) { return static_cast<size_t>(i); };
  std::vector<bool> allowed(logits.size(), row.allowed == 0), seen(logits.size());
  std::vector<int> counts(logits.size());
  for (int32_t i = 0; i < row.allowed; ++i) allowed[at(buffers.ids[at(row.allowed_begin + i)])] = true;
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = allowed[i] ? logits[i] : -kInfinity;
  for (int32_t i = 0; i < row.masked; ++i) logits[at(buffers.ids[at(row.masked_begin + i)])] = -kInfinity;
  for (int32_t i = 0; i < row.biases; ++i)
    logits[at(buffers.bias_ids[at(row.bias_begin + i)])] += buffers.bias_values[at(row.bias_begin + i)];
  for (int32_t i = 0; i < row.prompt_tokens + row.output_tokens; ++i) {
    const size_t id = at(buffers.tokens[at(row.tokens_begin + i)]);
    seen[id] = true;
    counts[id] += i >= row.prompt_tokens ? 1 : 0;
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    if (seen[i]) logits[i] = logits[i] > 0 ? logits[i] / row.repetition_penalty : logits[i] * row.repetition_penalty;
    if (counts[i] > 0) logits[i] -= static_cast<float>(row.frequency_penalty * counts[i] + row.presence_penalty);
  }
  return logits;
}

TEST(GpuRows, TheRulesAreThoseOfTheSampler) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int32_t>(random() % static_cast<uint32_t>(n)); };
  const auto ids = [&](int n) {
    std::vector<int32_t> result(static_cast<size_t>(n));
    for (int32_t& id : result) id = below(kVocab);
    return result;
  };
  int with_rules = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    SamplingParams p;
    if (below(3) == 0) p.allowed_token_ids = ids(1 + below(20));
    if (below(3) == 0) p.min_tokens = below(8);
    if (below(3) == 0) p.repetition_penalty = 1.25;
    if (below(3) == 0) p.frequency_penalty = 0.3;
    if (below(3) == 0) p.presence_penalty = -0.7;
    if (below(3) == 0) p.logit_bias = {{below(20), 1.5f}, {20 + below(20), -kInfinity}};
    const std::vector<int32_t> prompt = ids(below(10)), output = ids(below(10)), stop = ids(below(3));
    for (int word = below(4); word > 0; --word) {
      p.bad_words.push_back(ids(1 + below(3)));
      // Words that the output has begun.
      if (below(2) == 0 && output.size() >= 2)
        p.bad_words.back() = {output[output.size() - 2], output.back(), below(kVocab)};
    }
    std::vector<float> logits(kVocab);
    for (float& x : logits) x = static_cast<float>(below(2000) - 1000) / 100;

    const SampleInput input{&p, prompt, output, stop, 7, 1};
    Buffers buffers(most_of_row(p, prompt.size() + output.size(), stop.size()));
    GpuRowWriter writer(buffers.views(), kVocab);
    ASSERT_TRUE(writer.add(input));
    const gpu::SampleRow& row = buffers.rows[0];
    std::vector<float> expected = logits;
    SamplerScratch scratch;
    apply_rules(expected, input, scratch);
    EXPECT_EQ(ruled(logits, row, buffers), expected) << trial;
    const bool rules = row.allowed + row.masked + row.biases + row.prompt_tokens + row.output_tokens > 0;
    EXPECT_EQ(row.kind, rules ? gpu::SampleKind::kShort : gpu::SampleKind::kRace);
    if (!rules) {
      EXPECT_EQ(expected, logits);
    }
    with_rules += rules ? 1 : 0;
    EXPECT_FALSE(writer.add(input));
    EXPECT_EQ(writer.used().rows, 1u);
  }
  EXPECT_GT(with_rules, 1000);
}

TEST(GpuRows, TheCutsAreThoseOfTheRequest) {
  Buffers buffers({8, 0, 0, 0});
  GpuRowWriter writer(buffers.views(), kVocab);
  const std::vector<int32_t> output = {1, 2, 3};
  const auto row_of = [&](const SamplingParams& p) {
    writer.clear();
    EXPECT_TRUE(writer.add({&p, {}, output, {}, 0x123456789abcdefu, 2}));
    return buffers.rows[0];
  };
  SamplingParams p;
  gpu::SampleRow row = row_of(p);
  EXPECT_EQ(row.kind, gpu::SampleKind::kRace);
  EXPECT_EQ(row.inverse_temperature, 1.0f);
  EXPECT_EQ(row.position, 3u);
  EXPECT_EQ(row.choice, 2u);
  EXPECT_EQ(row.seed, 0x123456789abcdefu);
  EXPECT_EQ(row.top_k, 0);
  EXPECT_EQ(row.logprobs, -1);

  p.temperature = 0.7;
  p.top_k = kVocab;
  EXPECT_EQ(row_of(p).kind, gpu::SampleKind::kRace);
  p.top_k = int64_t{1} << 40;
  EXPECT_EQ(row_of(p).top_k, 0);
  p.top_k = -1;
  EXPECT_EQ(row_of(p).top_k, 0);
  p.top_k = 5;
  p.min_p = 0.25;
  p.top_p = 0.9;
  row = row_of(p);
  EXPECT_EQ(row.kind, gpu::SampleKind::kShort);
  EXPECT_EQ(row.top_k, 5);
  EXPECT_EQ(row.top_p, 0.9);
  EXPECT_EQ(row.log_min_p, static_cast<float>(std::log(0.25)));
  EXPECT_EQ(row.inverse_temperature, static_cast<float>(1.0 / 0.7));
  p.temperature = 1e-6;  // greedy: the cuts change nothing
  row = row_of(p);
  EXPECT_EQ(row.kind, gpu::SampleKind::kGreedy);
  EXPECT_EQ(row.inverse_temperature, 0.0f);
  p.temperature = 1;
  p.top_k = 0;
  EXPECT_EQ(row_of(p).kind, gpu::SampleKind::kLong);
  p.top_p = 1;
  EXPECT_EQ(row_of(p).kind, gpu::SampleKind::kLong);
  p.min_p = 0;
  EXPECT_EQ(row_of(p).kind, gpu::SampleKind::kRace);
}

TEST(GpuRows, BuffersAreSharedAndNeverOverrun) {
  SamplingParams penal, biased, plain;
  penal.repetition_penalty = 2;
  biased.logit_bias = {{3, 1.0f}, {4, 2.0f}};
  const std::vector<int32_t> prompt = {5, 6}, output = {7};
  Buffers buffers({3, 7, 0, 3});
  GpuRowWriter writer(buffers.views(), kVocab);
  EXPECT_TRUE(writer.add({&penal, prompt, output, {}, 0, 0}));
  EXPECT_TRUE(writer.add({&penal, prompt, output, {}, 0, 0}));
  EXPECT_FALSE(writer.add({&penal, prompt, output, {}, 0, 0}));  // one token short
  EXPECT_TRUE(writer.add({&biased, prompt, output, {}, 0, 0}));
  EXPECT_FALSE(writer.add({&plain, prompt, output, {}, 0, 0}));  // no row
  EXPECT_FALSE(writer.add_given(1, 0));
  EXPECT_EQ(writer.used().tokens, 6u);
  EXPECT_EQ(writer.used().biases, 2u);
  EXPECT_EQ(buffers.rows[1].tokens_begin, 3);
  EXPECT_EQ(buffers.tokens, (std::vector<int32_t>{5, 6, 7, 5, 6, 7, 0}));
  writer.clear();
  EXPECT_TRUE(writer.add({&biased, prompt, output, {}, 0, 0}));
  EXPECT_FALSE(writer.add({&biased, prompt, output, {}, 0, 0}));
  EXPECT_EQ(writer.used().rows, 1u);
}

TEST(GpuRows, ChosenLogprobsAreForTheHost) {
  Buffers buffers({1, 0, 0, 0});
  GpuRowWriter writer(buffers.views(), kVocab);
  SamplingParams params;
  params.logprobs = 2;
  params.logprob_token_ids = {1, 2};
  EXPECT_FALSE(writer.add({&params, {}, {}, {}, 0, 0}));
  EXPECT_EQ(writer.used().rows, 0u);
}

TEST(GpuRows, WhatTheRowsHaveIsSaid) {
  Buffers buffers({4, 10, 0, 0});
  GpuRowWriter writer(buffers.views(), kVocab);
  gpu::SampleArgs args;
  SamplingParams cut;
  cut.top_k = 3;
  EXPECT_TRUE(writer.add({&cut, {}, {}, {}, 0, 0}));
  writer.describe(args);
  EXPECT_FALSE(args.any_greedy || args.any_race);
  EXPECT_TRUE(args.any_short);
  EXPECT_FALSE(args.any_long);
  EXPECT_FALSE(args.any_logprobs);
  cut.logprobs = 4;
  EXPECT_TRUE(writer.add({&cut, {}, {}, {}, 0, 0}));
  EXPECT_TRUE(writer.add_given(9, 2));
  writer.describe(args);
  EXPECT_TRUE(args.any_greedy && args.any_short && args.any_logprobs);
  EXPECT_EQ(args.rows, 3);
  EXPECT_EQ(args.vocab, kVocab);
  EXPECT_EQ(args.max_logprobs, 4);
  EXPECT_EQ(buffers.rows[2].given_token, 9);
  EXPECT_EQ(buffers.rows[2].kind, gpu::SampleKind::kGreedy);
  cut.logprobs = -1;
  EXPECT_TRUE(writer.add({&cut, {}, {}, {}, 0, 0}));
  EXPECT_EQ(buffers.rows[3].logprobs, kVocab);
}

TEST(GpuRows, ResultsBecomeLogprobs) {
  gpu::SampleRow row;
  EXPECT_EQ(gpu_sample_result(row, {5, -1.0f, 2}, {}, {}).token, 5);
  EXPECT_FALSE(gpu_sample_result(row, {5, -1.0f, 2}, {}, {}).logprobs);
  row.logprobs = 2;
  const std::vector<int32_t> ids = {8, 5, 99};
  const std::vector<float> values = {-0.5f, -1.0f, 77.0f};
  EXPECT_FALSE(gpu_sample_result(row, {-1, 0.0f, 0}, ids, values).logprobs);
  const SampleResult result = gpu_sample_result(row, {5, -1.0f, 2}, ids, values);
  ASSERT_TRUE(result.logprobs);
  EXPECT_EQ(result.logprobs->token.id, 5);
  EXPECT_EQ(result.logprobs->token.logprob, -1.0f);
  EXPECT_EQ(result.logprobs->token.rank, 2);
  ASSERT_EQ(result.logprobs->top.size(), 2u);
  EXPECT_EQ(result.logprobs->top[0].id, 8);
  EXPECT_EQ(result.logprobs->top[1].rank, 2);
  EXPECT_EQ(result.logprobs->top[1].logprob, -1.0f);
}

}  // namespace
}  // namespace quire
