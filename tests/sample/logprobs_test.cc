#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "sample/sampler.h"

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Logprobs, EqualAFullSortInDouble) {
  std::mt19937 random(5);
  for (const size_t n : {1, 2, 100, 3000, 40000}) {
    std::normal_distribution<float> normal(0.0f, 4.0f);
    std::vector<float> logits(n);
    for (float& x : logits) x = std::round(normal(random) * 32) / 32;
    const double best = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float x : logits) sum += std::exp(x - best);
    std::vector<int32_t> order(n);
    for (size_t i = 0; i < n; ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    const auto logprob = [&](int32_t id) { return logits[static_cast<size_t>(id)] - best - std::log(sum); };
    const auto token = static_cast<int32_t>(n / 2);
    for (const int32_t top : {0, 1, 5, 20, 700, 5000, -1}) {
      const TokenLogprobs result = token_logprobs(logits, token, top);
      EXPECT_NEAR(result.token.logprob, logprob(token), 2e-6 * std::max(1.0, std::abs(logprob(token))));
      const auto above =
          std::count_if(logits.begin(), logits.end(), [&](float x) { return x > logits[static_cast<size_t>(token)]; });
      EXPECT_EQ(result.token.rank, above + 1);
      const size_t wanted = top < 0 ? n : std::min(n, static_cast<size_t>(top));
      ASSERT_EQ(result.top.size(), wanted);
      for (size_t i = 0; i < wanted; ++i) {
        ASSERT_EQ(result.top[i].id, order[i]) << n << " " << top;
        ASSERT_EQ(result.top[i].rank, static_cast<int32_t>(i) + 1);
        ASSERT_NEAR(result.top[i].logprob, logprob(order[i]), 2e-6 * std::max(1.0, std::abs(logprob(order[i]))));
      }
    }
  }
}

TEST(Logprobs, MaskedAndNanLogitsComeLast) {
  const std::vector<float> logits = {std::nanf(""), 1.0f, -kInfinity, 3.0f};
  const TokenLogprobs result = token_logprobs(logits, 0, -1);
  EXPECT_EQ(result.token.logprob, -kInfinity);
  ASSERT_EQ(result.top.size(), 4u);
  EXPECT_EQ(result.top[0].id, 3);
  EXPECT_NEAR(result.top[0].logprob, -std::log1p(std::exp(-2.0)), 1e-6);
  EXPECT_EQ(result.top[2].logprob, -kInfinity);
  EXPECT_EQ(result.top[2].id, 0);
  const TokenLogprobs none = token_logprobs(std::vector<float>(3, -kInfinity), 1, 2);
  EXPECT_EQ(none.token.logprob, -kInfinity);
  EXPECT_EQ(none.top.size(), 2u);
}

TEST(Logprobs, OfChosenIdsAreThoseOfTheWholeVocabulary) {
  const std::vector<float> logits = {1.0f, -2.0f, 3.0f, 3.0f, 0.5f};
  SamplerScratch scratch;
  const TokenLogprobs all = token_logprobs(logits, 0, -1, scratch);
  const std::vector<int32_t> ids = {4, 2, 0};
  const TokenLogprobs chosen = token_logprobs(logits, 1, ids, scratch);
  EXPECT_EQ(chosen.token.id, 1);
  EXPECT_EQ(chosen.token.rank, 5);
  ASSERT_EQ(chosen.top.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(chosen.top[i].id, ids[i]);
    const auto same = std::ranges::find(all.top, ids[i], &TokenLogprobs::Entry::id);
    EXPECT_EQ(chosen.top[i].logprob, same->logprob);
  }
}

}  // namespace
}  // namespace quire
