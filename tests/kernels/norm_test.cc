#include <gtest/gtest.h>

#include <cmath>

#include "kernels/norm/rms_norm.h"
#include "kernels/test_values.h"

namespace quire {
namespace {

TEST(RmsNorm, MatchesDoubleAndIsTheSameOnEveryInstructionSet) {
  constexpr float kEps = 1e-5f;
  for (const int64_t n : {1, 15, 16, 17, 576, 1000}) {
    const std::vector<float> x = random_floats(n, static_cast<unsigned>(n)), weight = random_floats(n, 2);
    double squares = 0;
    for (const float value : x) squares += static_cast<double>(value) * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + kEps);
    std::vector<float> first;
    for (const auto& [name, kernels] : all_vector_kernels()) {
      std::vector<float> y(x.size());
      kernels->rms_norm(x.data(), weight.data(), kEps, y.data(), n);
      for (size_t i = 0; i < y.size(); ++i) {
        // A sum of n/16 + 4 + 15 positive terms, halved by the root, then five roundings.
        const double bound = (static_cast<double>(n) / 32 + 20) * 0x1p-24 * std::fabs(x[i] * scale * weight[i]);
        ASSERT_NEAR(y[i], x[i] * scale * weight[i], bound) << name << ", n " << n;
      }
      if (first.empty()) first = y;
      EXPECT_EQ(y, first) << name << ", n " << n;
    }
  }
}

TEST(RmsNorm, RowsInPlaceOnAnyNumberOfThreads) {
  constexpr int64_t kRows = 70, kColumns = 576;
  const std::vector<float> x = random_floats(kRows * kColumns, 1), weight = random_floats(kColumns, 2);
  std::vector<float> expected(x.size());
  ThreadPool one(1), three(3);
  rms_norm(x.data(), weight.data(), 1e-5f, expected.data(), kRows, kColumns, one);
  std::vector<float> y = x;
  rms_norm(y.data(), weight.data(), 1e-5f, y.data(), kRows, kColumns, three);
  EXPECT_EQ(y, expected);
  std::vector<float> row(static_cast<size_t>(kColumns));
  rms_norm(x.data() + 69 * kColumns, weight.data(), 1e-5f, row.data(), 1, kColumns, one);
  EXPECT_EQ(row, std::vector<float>(expected.begin() + 69 * kColumns, expected.end()));
}

TEST(RmsNorm, ZerosStayZeros) {
  const std::vector<float> x(32, 0.0f), weight(32, 1.0f);
  for (const auto& [name, kernels] : all_vector_kernels()) {
    std::vector<float> y(32, 1.0f);
    kernels->rms_norm(x.data(), weight.data(), 1e-5f, y.data(), 32);
    EXPECT_EQ(y, x) << name;
  }
}

}  // namespace
}  // namespace quire
