#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(size_t n, uint32_t seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> row(n);
  for (float& x : row) x = normal(random);
  return row;
}

SamplingParams with(double temperature, double top_p = 1.0, int64_t top_k = 0, double min_p = 0.0) {
  SamplingParams p;
  p.temperature = temperature;
  p.top_p = top_p;
  p.top_k = top_k;
  p.min_p = min_p;
  return p;
}

int32_t draw(std::vector<float> logits, const SamplingParams& params, uint64_t seed, SamplerScratch& scratch,
             uint32_t choice = 0, std::vector<int32_t> output = {}) {
  SampleInput input;
  input.params = &params;
  input.seed = seed;
  input.choice = choice;
  input.output_ids = output;
  return sample(logits, input, scratch).token;
}

// What is left, in double and with a full sort.
std::vector<std::pair<int32_t, double>> naive_candidates(const std::vector<float>& logits, const SamplingParams& p) {
  const double best = *std::max_element(logits.begin(), logits.end());
  std::vector<std::pair<double, int32_t>> rows;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double w = std::exp((logits[i] - best) / p.temperature);
    if (logits[i] > -kInfinity && w >= p.min_p) rows.emplace_back(-w, static_cast<int32_t>(i));
  }
  std::sort(rows.begin(), rows.end());
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < rows.size()) rows.resize(static_cast<size_t>(p.top_k));
  double total = 0, mass = 0;
  for (const auto& [w, id] : rows) total -= w;
  size_t kept = p.top_p < 1 ? 0 : rows.size();
  if (kept != 0) mass = total;
  while (kept < rows.size() && mass < p.top_p * total * (1 - 1e-6)) mass -= rows[kept++].first;
  std::vector<std::pair<int32_t, double>> result;
  for (size_t i = 0; i < kept; ++i) result.emplace_back(rows[i].second, -rows[i].first / mass);
  std::sort(result.begin(), result.end());
  return result;
}

TEST(SamplerProperties, CandidatesAreThoseOfAFullSort) {
  uint32_t seed = 0;
  for (const size_t n : {5, 64, 1500, 20000}) {
    for (const float deviation : {0.001f, 1.0f, 5.0f}) {
      const std::vector<float> logits = random_logits(n, ++seed, deviation);
      for (const SamplingParams& p :
           {with(1), with(0.7, 0.9), with(1, 0.999), with(1, 0.3), with(1, 0.01), with(1, 1, 1), with(1.5, 1, 50),
            with(1, 1, 900), with(1, 1, 30000), with(1, 1, 0, 0.05), with(2, 0.8, 40, 0.01), with(1, 0.5, 3000),
            with(1, 0.9, 0, 0.2)}) {
        std::vector<float> row = logits;
        SampleInput input;
        input.params = &p;
        const auto got = candidate_probabilities(row, input), expected = naive_candidates(logits, p);
        // Where a sum lands within rounding of top_p, one candidate more or less is right.
        ASSERT_NEAR(static_cast<double>(got.size()), static_cast<double>(expected.size()),
                    p.top_p < 1 && n > 1000 ? 1 : 0)
            << n << " " << deviation << " p " << p.top_p << " k " << p.top_k << " min_p " << p.min_p;
        if (got.size() != expected.size()) continue;
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(got[i].first, expected[i].first);
          ASSERT_NEAR(got[i].second, expected[i].second, 1e-6 + 1e-5 * expected[i].second);
        }
      }
    }
  }
}

TEST(SamplerProperties, DrawsFollowTheProbabilities) {
  const std::vector<float> logits = {2.0f, 1.0f, 0.5f, 0.0f, -0.5f, -1.0f, 1.5f, -kInfinity, 0.25f, 1.25f, -3.0f};
  SamplerScratch scratch;
  uint64_t seed = 1000;
  for (const SamplingParams& p :
       {with(1), with(0.5), with(2), with(1, 0.8), with(1, 1, 4), with(1, 1, 0, 0.2), with(1.3, 0.9, 6)}) {
    std::vector<float> row = logits;
    SampleInput input;
    input.params = &p;
    const auto expected = candidate_probabilities(row, input);
    std::map<int32_t, int> counts;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) ++counts[draw(logits, p, ++seed, scratch)];
    double chi2 = 0, total = 0;
    for (const auto& [id, probability] : expected) {
      const double mean = probability * kDraws, difference = counts[id] - mean;
      chi2 += difference * difference / mean;
      total += counts[id];
    }
    EXPECT_EQ(total, kDraws) << "a draw outside what is kept";
    const double freedom = static_cast<double>(expected.size()) - 1;
    EXPECT_LT(chi2, freedom + 4.5 * std::sqrt(2 * freedom)) << "temperature " << p.temperature << " top_p " << p.top_p;
  }
}

// The same request over many output positions and choices: the draws must not hang together.
TEST(SamplerProperties, PositionsAndChoicesAreIndependent) {
  const std::vector<float> logits(8, 0.0f);
  const SamplingParams p = with(1);
  SamplerScratch scratch;
  std::vector<int> pairs(64);
  std::vector<int32_t> output;
  constexpr int kDraws = 6400;
  int32_t before = draw(logits, p, 7, scratch);
  for (int i = 0; i < kDraws; ++i) {
    output.push_back(0);
    const int32_t token = draw(logits, p, 7, scratch, static_cast<uint32_t>(i % 3), output);
    ++pairs[static_cast<size_t>(before) * 8 + static_cast<size_t>(token)];
    before = token;
  }
  double chi2 = 0;
  for (const int count : pairs) chi2 += (count - 100.0) * (count - 100.0) / 100.0;
  EXPECT_LT(chi2, 63 + 5 * std::sqrt(2 * 63.0));
  std::vector<int32_t> first, second;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    first.push_back(draw(logits, p, seed, scratch, 0));
    second.push_back(draw(logits, p, seed, scratch, 1));
  }
  EXPECT_NE(first, second);
}

TEST(SamplerProperties, SameResultWhateverTheScratch) {
  SamplerScratch used;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const size_t n = 1 + seed * 137 % 3000;
    const std::vector<float> logits = random_logits(n, static_cast<uint32_t>(seed), 2.0f);
    SamplingParams p = with(seed % 3 ? 0.9 : 0.0, seed % 2 ? 0.8 : 1.0, seed % 5 ? 0 : 20, seed % 7 ? 0.0 : 0.1);
    p.repetition_penalty = seed % 4 ? 1.0 : 1.3;
    p.frequency_penalty = seed % 6 ? 0.0 : 0.5;
    p.logprobs = 3;
    const std::vector<int32_t> ids = {0, 0, static_cast<int32_t>(n / 2), static_cast<int32_t>(n - 1)};
    SampleInput input;
    input.params = &p;
    input.seed = seed;
    input.prompt_ids = ids;
    input.output_ids = ids;
    std::vector<float> a = logits, b = logits;
    SamplerScratch fresh;
    const SampleResult x = sample(a, input, used), y = sample(b, input, fresh);
    EXPECT_EQ(x.token, y.token);
    ASSERT_EQ(x.logprobs->top.size(), y.logprobs->top.size());
    EXPECT_EQ(x.logprobs->token.logprob, y.logprobs->token.logprob);
    EXPECT_TRUE(std::all_of(used.marks.begin(), used.marks.end(), [](int32_t mark) { return mark == 0; }));
  }
}

TEST(SamplerProperties, TinyTemperaturesAreGreedy) {
  SamplerScratch scratch;
  for (const double temperature : {1e-2, 1e-4, 1e-5, 1e-8, 1e-45, 0.0}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_EQ(draw({-3e4f, 3e4f, 0.0f}, with(temperature), seed, scratch), 1);
      const std::vector<float> close = {10.0f, temperature <= 1e-3 ? 9.99f : 9.0f, -5.0f};
      EXPECT_EQ(draw(close, with(temperature), seed, scratch), 0);
    }
  }
}

TEST(SamplerProperties, NoFiniteLogitGivesNoToken) {
  SamplerScratch scratch;
  const float nan = std::nanf("");
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_EQ(draw({nan, 1, 2}, with(temperature), 1, scratch), -1);
    EXPECT_EQ(draw({1, 2, nan}, with(temperature), 1, scratch), -1);
    EXPECT_EQ(draw({kInfinity, 1}, with(temperature), 1, scratch), -1);
    EXPECT_EQ(draw(std::vector<float>(100, -kInfinity), with(temperature), 1, scratch), -1);
    EXPECT_EQ(draw({-kInfinity, -7, -kInfinity}, with(temperature), 1, scratch), 1);
  }
}

struct Rules {
  SamplingParams params = with(0);
  std::vector<int32_t> prompt, output, stop;
  std::vector<float> logits = {5, 4, 3, 2};
  int32_t token() const {
    SampleInput input;
    input.params = &params;
    input.prompt_ids = prompt;
    input.output_ids = output;
    input.stop_ids = stop;
    std::vector<float> row = logits;
    SamplerScratch scratch;
    return sample(row, input, scratch).token;
  }
};

TEST(SamplerRules, AllowedIds) {
  Rules r;
  r.params.allowed_token_ids = {3, 2, 3};
  EXPECT_EQ(r.token(), 2);
  r.params.logit_bias = {{0, 100.0f}, {3, 2.0f}};  // bias doesn't bring back what isn't allowed
  EXPECT_EQ(r.token(), 3);
}

TEST(SamplerRules, BadWords) {
  Rules r;
  r.params.bad_words = {{0}, {1, 2, 1}};
  EXPECT_EQ(r.token(), 1);
  r.output = {3, 1, 2};
  EXPECT_EQ(r.token(), 2) << "1 would complete 1 2 1";
  r.output = {2};
  EXPECT_EQ(r.token(), 1) << "the output is shorter than the word";
}

TEST(SamplerRules, MinTokensMasksStopIds) {
  Rules r;
  r.params.min_tokens = 2;
  r.stop = {0, 1};
  EXPECT_EQ(r.token(), 2);
  r.output = {3};
  EXPECT_EQ(r.token(), 2);
  r.output = {3, 3};
  EXPECT_EQ(r.token(), 0);
}

TEST(SamplerRules, Penalties) {
  Rules r;
  r.params.repetition_penalty = 2.0;
  r.prompt = {0, 0};
  EXPECT_EQ(r.token(), 1) << "5 / 2 is below 4";
  r.logits[1] = 2.4f;
  r.logits[2] = 2.3f;
  EXPECT_EQ(r.token(), 0) << "5 / 2, once, is above 2.4";
  r.logits = {5, 4, 3, 2};
  r.output = {1};
  EXPECT_EQ(r.token(), 2);
  r.logits = {-1, -1.5f, -4, -5};
  r.prompt = {0};
  EXPECT_EQ(r.token(), 0) << "-1 * 2 is above -1.5 * 2";
  r.output = {};
  EXPECT_EQ(r.token(), 1);

  Rules f;
  f.params.frequency_penalty = 0.6;
  f.prompt = {0, 0, 0};
  EXPECT_EQ(f.token(), 0) << "the prompt doesn't count";
  f.output = {0};
  EXPECT_EQ(f.token(), 0);
  f.output = {0, 0};
  EXPECT_EQ(f.token(), 1);
  f.params.frequency_penalty = 0;
  f.params.presence_penalty = 1.5;
  EXPECT_EQ(f.token(), 1);
}

TEST(SamplerRules, LogprobsAreOfTheRawLogits) {
  Rules r;
  r.params.logit_bias = {{3, 100.0f}};
  r.params.logprobs = 2;
  SampleInput input;
  input.params = &r.params;
  std::vector<float> row = r.logits;
  SamplerScratch scratch;
  const SampleResult result = sample(row, input, scratch);
  EXPECT_EQ(result.token, 3);
  EXPECT_EQ(result.logprobs->token.rank, 4);
  EXPECT_EQ(result.logprobs->top[0].id, 0);
}

}  // namespace
}  // namespace quire
