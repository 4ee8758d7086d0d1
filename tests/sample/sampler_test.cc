#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

namespace quire {
namespace {

using Json = nlohmann::json;

Json cases() {
  std::ifstream file(QUIRE_TEST_DATA "/sample/sampling_cases.json");
  return Json::parse(file);
}

std::vector<float> logits_of(const Json& list) {
  std::vector<float> logits;
  for (const Json& x : list) {
    if (x.is_number()) {
      logits.push_back(x.get<float>());
    } else {
      logits.push_back(x == "nan" ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity());
    }
  }
  return logits;
}

class SamplingCases : public testing::TestWithParam<Json> {};

TEST_P(SamplingCases, Hold) {
  const Json& c = GetParam();
  SamplingParams params;
  params.temperature = c.value("temperature", 1.0);
  params.top_p = c.value("top_p", 1.0);
  params.top_k = c.value("top_k", int64_t{0});
  params.min_p = c.value("min_p", 0.0);
  params.presence_penalty = c.value("presence_penalty", 0.0);
  params.frequency_penalty = c.value("frequency_penalty", 0.0);
  if (c.contains("logit_bias")) {
    for (const auto& [id, bias] : c["logit_bias"].items())
      params.logit_bias.emplace_back(std::stoi(id), bias.get<float>());
  }
  const auto prompt = c.value("prompt_ids", std::vector<int32_t>{}),
             output = c.value("output_ids", std::vector<int32_t>{});
  SampleInput input;
  input.params = &params;
  input.prompt_ids = prompt;
  input.output_ids = output;
  SamplerScratch scratch;
  int checked = 0;

  std::vector<int64_t> top_ks = c.value("top_k_values", std::vector<int64_t>{params.top_k});
  for (const int64_t top_k : top_ks) {
    params.top_k = top_k;
    std::vector<float> logits = logits_of(c["logits"]);
    const auto left = candidate_probabilities(logits, input);
    if (c.contains("kept")) {
      std::vector<int32_t> kept;
      kept.reserve(left.size());
      for (const auto& [id, probability] : left) kept.push_back(id);
      EXPECT_EQ(kept, c["kept"].get<std::vector<int32_t>>());
      ++checked;
    }
    if (c.contains("kept_count_allowed")) {
      const auto allowed = c["kept_count_allowed"].get<std::set<size_t>>();
      EXPECT_TRUE(allowed.contains(left.size()));
      ++checked;
    }
    if (c.contains("probs")) {
      std::vector<double> probabilities(c["logits"].size());
      for (const auto& [id, probability] : left) probabilities[static_cast<size_t>(id)] = probability;
      for (size_t i = 0; i < probabilities.size(); ++i)
        EXPECT_NEAR(probabilities[i], c["probs"][i].get<double>(), 1e-6);
      ++checked;
    }
    if (c.contains("logits_after")) {
      // Temperature 1 and nothing cut: probabilities are the softmax of the processed logits, from which they come back
      // up to a constant.
      for (size_t i = 1; i < left.size(); ++i) {
        const double difference = std::log(left[i].second / left[0].second);
        EXPECT_NEAR(difference, c["logits_after"][i].get<double>() - c["logits_after"][0].get<double>(), 1e-6);
      }
      ++checked;
    }
    if (c.contains("token")) {
      for (uint64_t seed = 0; seed < 20; ++seed) {
        logits = logits_of(c["logits"]);
        input.seed = seed;
        EXPECT_EQ(sample(logits, input, scratch).token, c["token"].get<int32_t>());
      }
      ++checked;
    }
    if (c.value("probs_finite", false)) {
      double sum = 0;
      for (const auto& [id, probability] : left) sum += probability;
      EXPECT_NEAR(sum, 1.0, 1e-6);
    }
    if (c.value("expect", "") == "error_for_this_request_only") {
      logits = logits_of(c["logits"]);
      EXPECT_EQ(sample(logits, input, scratch).token, -1);
      params.temperature = 0;
      logits = logits_of(c["logits"]);
      EXPECT_EQ(sample(logits, input, scratch).token, -1);
      ++checked;
    }
  }
  EXPECT_GT(checked, 0) << "the case says nothing that this test reads";
}

std::string case_name(const testing::TestParamInfo<Json>& one) {
  std::string name = one.param["id"].get<std::string>();
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, SamplingCases, testing::ValuesIn(cases().get<std::vector<Json>>()), case_name);

std::vector<float> random_logits(size_t n, uint64_t seed) {
  std::vector<float> logits(n);
  for (size_t i = 0; i < n; ++i)
    logits[i] = static_cast<float>(8.0 * philox_uniform(seed, 7, 3, static_cast<uint32_t>(i)) - 4.0);
  return logits;
}

// Draws over many seeds follow the probabilities: chi-square with 9 degrees of freedom stays under its 1 - 1e-6
// quantile, 44.8.
TEST(Sampler, DrawsFollowTheProbabilities) {
  for (const bool cut : {false, true}) {
    SamplingParams params;
    params.temperature = 0.8;
    if (cut) params.top_p = 0.9999;
    SampleInput input;
    input.params = &params;
    const std::vector<float> logits = {1.0f, 0.5f, 0.0f, -0.5f, 2.0f, 1.5f, -1.0f, 0.2f, 0.7f, -0.3f};
    std::vector<float> work = logits;
    const auto expected = candidate_probabilities(work, input);
    ASSERT_EQ(expected.size(), 10u);
    std::map<int32_t, int> counts;
    SamplerScratch scratch;
    constexpr int kDraws = 40000;
    for (int i = 0; i < kDraws; ++i) {
      input.seed = static_cast<uint64_t>(i);
      work = logits;
      ++counts[sample(work, input, scratch).token];
    }
    double chi_square = 0;
    for (const auto& [id, probability] : expected) {
      const double mean = probability * kDraws;
      chi_square += (counts[id] - mean) * (counts[id] - mean) / mean;
    }
    EXPECT_LT(chi_square, 44.8);
  }
}

TEST(Sampler, ADrawDependsOnSeedChoiceAndPositionOnly) {
  SamplingParams params;
  SampleInput input;
  input.params = &params;
  const std::vector<float> logits = random_logits(5000, 1);
  SamplerScratch used, fresh;
  const auto draw = [&](SamplerScratch& scratch, uint64_t seed, uint32_t choice, size_t position) {
    const std::vector<int32_t> output(position, 1);
    input.seed = seed;
    input.choice = choice;
    input.output_ids = output;
    std::vector<float> work = logits;
    return sample(work, input, scratch).token;
  };
  std::set<int32_t> distinct;
  for (int i = 0; i < 50; ++i) distinct.insert(draw(used, 5, 0, static_cast<size_t>(i)));
  EXPECT_GT(distinct.size(), 25u);
  EXPECT_EQ(draw(used, 5, 0, 3), draw(fresh, 5, 0, 3));
  // Cutting what can't win anyway changes no draw: the same noise belongs to the same id.
  params.top_k = 4999;
  EXPECT_EQ(draw(used, 5, 0, 3), (params.top_k = 0, draw(fresh, 5, 0, 3)));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<float> logits = random_logits(2000, seed);
    std::vector<double> probabilities;
    probabilities.reserve(logits.size());
    double total = 0;
    for (const float x : logits) total += std::exp(static_cast<double>(x));
    for (const float x : logits) probabilities.push_back(std::exp(static_cast<double>(x)) / total);
    std::sort(probabilities.rbegin(), probabilities.rend());
    size_t expected = 0;
    for (double mass = 0; mass < 0.7; ++expected) mass += probabilities[expected];
    SamplingParams params;
    params.top_p = 0.7;
    SampleInput input;
    input.params = &params;
    EXPECT_EQ(candidate_probabilities(logits, input).size(), expected);
  }
}

TEST(Sampler, MinTokensMasksTheStopIds) {
  SamplingParams params;
  params.temperature = 0;
  params.min_tokens = 2;
  const std::vector<int32_t> stop = {1};
  SampleInput input;
  input.params = &params;
  input.stop_ids = stop;
  SamplerScratch scratch;
  for (const size_t position : {0u, 1u, 2u}) {
    const std::vector<int32_t> output(position, 0);
    input.output_ids = output;
    std::vector<float> logits = {0.0f, 5.0f, 1.0f};
    EXPECT_EQ(sample(logits, input, scratch).token, position < 2 ? 2 : 1);
  }
}

TEST(Sampler, BadWordsAllowedIdsAndRepetition) {
  SamplingParams params;
  params.temperature = 0;
  SampleInput input;
  input.params = &params;
  SamplerScratch scratch;
  const std::vector<int32_t> output = {4, 3};
  input.output_ids = output;
  const auto pick = [&](std::vector<float> logits) { return sample(logits, input, scratch).token; };
  params.bad_words = {{3, 1}, {4, 2}, {0}};
  EXPECT_EQ(pick({9, 8, 7, 0, 0}), 2);  // 0 is bad alone, 1 after 3; 2 only after 4
  params.bad_words.clear();
  params.allowed_token_ids = {4, 1};
  EXPECT_EQ(pick({9, 8, 7, 0, 8.5f}), 4);
  params.allowed_token_ids.clear();
  params.repetition_penalty = 2.0;
  EXPECT_EQ(pick({-2, -3, -4, 8, 3.9f}), 3);  // 8/2 = 4 stays ahead of 3.9/2
  EXPECT_EQ(pick({2, -3, -4, 3.8f, 3.9f}), 0);
}

TEST(Sampler, LogprobsAreThoseOfTheRawLogits) {
  SamplingParams params;
  params.temperature = 0;
  params.logprobs = 2;
  params.logit_bias = {{0, 100.0f}};
  SampleInput input;
  input.params = &params;
  SamplerScratch scratch;
  std::vector<float> logits = {1.0f, 2.0f, 3.0f, 3.0f};
  const SampleResult result = sample(logits, input, scratch);
  const double log_sum = std::log(std::exp(1.0) + std::exp(2.0) + 2 * std::exp(3.0));
  ASSERT_TRUE(result.logprobs.has_value());
  EXPECT_EQ(result.token, 0);
  EXPECT_NEAR(result.logprobs->token.logprob, 1.0 - log_sum, 1e-6);
  EXPECT_EQ(result.logprobs->token.rank, 4);
  ASSERT_EQ(result.logprobs->top.size(), 2u);
  EXPECT_EQ(result.logprobs->top[0].id, 2);
  EXPECT_EQ(result.logprobs->top[1].id, 3);
  EXPECT_NEAR(result.logprobs->top[0].logprob, 3.0 - log_sum, 1e-6);
}

TEST(TokenLogprobs, WholeVocabularySumsToOne) {
  const std::vector<float> logits = random_logits(1000, 9);
  const TokenLogprobs all = token_logprobs(logits, 17, -1);
  ASSERT_EQ(all.top.size(), 1000u);
  double sum = 0;
  for (size_t i = 0; i < all.top.size(); ++i) {
    sum += std::exp(static_cast<double>(all.top[i].logprob));
    EXPECT_EQ(all.top[i].rank, static_cast<int32_t>(i + 1));
    EXPECT_LE(all.top[i].logprob, all.top[i == 0 ? 0 : i - 1].logprob);
  }
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

}  // namespace
}  // namespace quire
