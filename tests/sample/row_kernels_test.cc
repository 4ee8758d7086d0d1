// Each instruction set against a plain loop, and all against each other to the last bit.
#include "sample/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const size_t kSizes[] = {1, 3, 16, 63, 64, 65, 1000, 1024, 1025, 5003, 49152};

std::vector<float> random_row(size_t n, uint32_t seed, float deviation = 3.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> row(n);
  for (float& x : row) x = std::round(normal(random) * 64) / 64;  // with ties
  if (n > 8) row[n / 3] = -kInfinity;
  return row;
}

class RowKernelsTest : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override {
    if (!cpu_has(GetParam())) GTEST_SKIP() << "this machine lacks " << cpu_isa_name(GetParam());
  }
  const RowKernels& kernels() const { return row_kernels(GetParam()); }
};

TEST_P(RowKernelsTest, MaximumAndIndex) {
  for (const size_t n : kSizes) {
    std::vector<float> row = random_row(n, static_cast<uint32_t>(n));
    std::vector<float> maxima(maxima_of(n));
    const auto best = std::max_element(row.begin(), row.end());
    const RowMaximum found = kernels().maximum(row.data(), n, maxima.data());
    EXPECT_EQ(found.value, *best) << n;
    EXPECT_FALSE(found.has_nan);
    EXPECT_EQ(kernels().index_of(row.data(), n, *best), static_cast<size_t>(best - row.begin())) << n;
    EXPECT_EQ(kernels().index_of(row.data(), n, 1e6f), n);
    for (size_t block = 0; block * kMaximaStride < n; ++block) {
      for (size_t lane = 0; lane < kMaximaLanes; ++lane) {
        float expected = -kInfinity;
        for (size_t i = block * kMaximaStride + lane; i < std::min(n, (block + 1) * kMaximaStride); i += kMaximaLanes) {
          expected = std::max(expected, row[i]);
        }
        EXPECT_EQ(maxima[block * kMaximaLanes + lane], expected);
      }
    }
    row[n - 1] = std::nanf("");
    EXPECT_TRUE(kernels().maximum(row.data(), n, maxima.data()).has_nan) << n;
  }
}

TEST_P(RowKernelsTest, CountScaleCollect) {
  for (const size_t n : kSizes) {
    std::vector<float> row = random_row(n, static_cast<uint32_t>(n) + 1);
    std::vector<Candidate> found(n), expected;
    size_t above = 0;
    for (size_t i = 0; i < n; ++i) {
      if (row[i] >= 1.0f) expected.emplace_back(row[i], static_cast<int32_t>(i));
      above += row[i] > 1.0f;
    }
    EXPECT_EQ(kernels().count_above(row.data(), n, 1.0f), above);
    found.resize(kernels().collect(row.data(), n, 1.0f, found.data()));
    EXPECT_EQ(found, expected) << n;
    found.resize(n);
    EXPECT_EQ(kernels().collect(row.data(), n, -kInfinity, found.data()), n > 8 ? n - 1 : n)
        << "-inf is never collected";
    std::vector<float> scaled = row;
    kernels().scale(scaled.data(), n, 2.5f, 0.7f);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(scaled[i], (row[i] - 2.5f) * 0.7f);
  }
}

TEST_P(RowKernelsTest, SumOfExponentials) {
  for (const size_t n : kSizes) {
    std::vector<float> row = random_row(n, static_cast<uint32_t>(n) + 2, 20.0f);
    const float best = *std::max_element(row.begin(), row.end());
    for (const float floor : {-kInfinity, best - 3.0f}) {
      double expected = 0;
      for (const float x : row) {
        if (x >= floor) expected += std::exp(static_cast<double>(x) - best);
      }
      const double sum = kernels().sum_exp(row.data(), n, best, floor);
      EXPECT_NEAR(sum, expected, expected * 1e-6) << n;
      EXPECT_EQ(sum, row_kernels(CpuIsa::kScalar).sum_exp(row.data(), n, best, floor)) << n;
    }
  }
}

// The bound that spares the logarithms must never lose the winner.
TEST_P(RowKernelsTest, RaceFindsTheWinnerOfAPlainLoop) {
  for (const size_t n : kSizes) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const float deviation = seed % 4 == 0 ? 0.0f : seed % 4 == 1 ? 1e-3f : 4.0f;
      std::vector<float> row = random_row(n, static_cast<uint32_t>(seed), deviation);
      const Cut cut{seed % 3 == 0 ? -1.0f : std::numeric_limits<float>::lowest(), static_cast<int32_t>(n / 2)};
      const PhiloxStream stream{seed * 0x9e3779b97f4a7c15u, static_cast<uint32_t>(seed),
                                static_cast<uint32_t>(seed % 5)};
      GumbelRace plain{stream, cut}, race{stream, cut};
      for (size_t i = n; i-- > 0;) {
        if (row[i] > -kInfinity) plain.offer(row[i], static_cast<int32_t>(i));
      }
      kernels().race(row.data(), n, race);
      EXPECT_EQ(race.winner, plain.winner) << n << " " << seed;
      EXPECT_EQ(race.best, plain.best) << n << " " << seed;
    }
  }
}

// An element that beats the leader by a hair, for words from one end to the other.
TEST_P(RowKernelsTest, RaceLosesNoCloseWinner) {
  constexpr size_t kRow = 64;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    const PhiloxStream stream{seed, 5, 1};
    const auto id = static_cast<int32_t>(seed % kRow);
    GumbelRace alone{stream, {}};
    alone.offer(0.25f, id);
    std::vector<float> row(kRow, -kInfinity);
    row[static_cast<size_t>(id)] = 0.25f;
    GumbelRace race{stream, {}};
    race.best = alone.best - 1e-6;
    kernels().race(row.data(), kRow, race);
    ASSERT_EQ(race.winner, id) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, RowKernelsTest, testing::Values(CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512),
                         [](const auto& isa) { return std::string(cpu_isa_name(isa.param)); });

}  // namespace
}  // namespace quire
