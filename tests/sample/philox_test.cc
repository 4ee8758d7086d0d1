#include "sample/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sample/gumbel.h"
#include "sample/sampler.h"

namespace quire {
namespace {

// The known answers that come with the generator's own library (Random123).
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformIsTheDocumentedWord) {
  const auto words = philox4x32({25, 7, 3, 0}, 0x9abcdef0, 0x12345678);
  for (uint32_t i = 0; i < 4; ++i) {
    const double u = philox_uniform(0x123456789abcdef0, 3, 7, 100 + i);
    EXPECT_EQ(u, 1.0 - (static_cast<double>(words[i]) + 0.5) / 4294967296.0);
  }
}

TEST(Philox, UniformsStayInsideTheOpenInterval) {
  EXPECT_GT(upper_tail(0), 0.0);
  EXPECT_LT(1.0 - upper_tail(0), 1.0);
  EXPECT_LT(upper_tail(0xffffffff), 1.0);
}

TEST(Philox, GumbelIsFiniteAndFalling) {
  EXPECT_LT(gumbel(0), static_cast<double>(kLargestGumbel));
  EXPECT_GT(gumbel(0), 22.8);
  EXPECT_TRUE(std::isfinite(gumbel(0xffffffff)));
  EXPECT_GT(gumbel(1000), gumbel(1001));
  EXPECT_NEAR(gumbel(0x7fffffff), -std::log(std::log(2.0)), 1e-8);  // u = 1/2
}

TEST(Philox, UniformsAreSpreadEvenly) {
  constexpr int kBins = 64, kDraws = 64000;
  std::vector<int> counts(kBins);
  for (uint32_t i = 0; i < kDraws; ++i)
    ++counts[static_cast<size_t>(philox_uniform(42, 0, i / 1000, i % 1000) * kBins)];
  double chi2 = 0;
  for (const int count : counts) chi2 += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi2, 63 + 5 * std::sqrt(2 * 63.0));
}

}  // namespace
}  // namespace quire
