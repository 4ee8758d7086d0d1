#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/activation/silu_mul.h"
#include "kernels/test_values.h"

namespace quire {
namespace {

TEST(SiluMul, MatchesDoubleAndIsTheSameOnEveryInstructionSet) {
  std::vector<float> gate;
  for (float value = -100.0f; value < 100.0f; value += 0.0137f) gate.push_back(value);
  for (const float value : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e30f, -1e30f}) gate.push_back(value);
  const auto n = static_cast<int64_t>(gate.size());
  const std::vector<float> up = random_floats(n, 4);
  std::vector<float> first;
  for (const auto& [name, kernels] : all_vector_kernels()) {
    std::vector<float> y(gate.size());
    kernels->silu_mul(gate.data(), up.data(), y.data(), n);
    for (size_t i = 0; i < gate.size(); ++i) {
      const double exact = static_cast<double>(gate[i]) / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i];
      // exp within 2 ulp, then an addition, a division and a product. Where exp(-gate) is clamped the result is 0 but
      // for 1e-8 of `up`.
      const double clamped =
          gate[i] < -87.0f ? std::fabs(up[i]) * std::max(1e-35, 1.1 * std::fabs(gate[i]) * 0x1p-126) : 0;
      ASSERT_NEAR(y[i], exact, 7 * 0x1p-24 * std::fabs(exact) + clamped) << name << ", gate " << gate[i];
    }
    if (first.empty()) first = y;
    EXPECT_EQ(y, first) << name;
  }
}

TEST(SiluMul, KeepsNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [name, kernels] : all_vector_kernels()) {
    for (const int64_t n : {3, 16}) {
      std::vector<float> gate(static_cast<size_t>(n), nan), up(static_cast<size_t>(n), 1.0f), y(static_cast<size_t>(n));
      kernels->silu_mul(gate.data(), up.data(), y.data(), n);
      for (const float value : y) EXPECT_TRUE(std::isnan(value)) << name;
    }
  }
}

TEST(SiluMul, TakesStackedRowsOnAnyNumberOfThreads) {
  constexpr int64_t kRows = 20, kColumns = 545, kStride = 600;
  const std::vector<float> gate_up = random_floats(kRows * 2 * kColumns, 5);
  ThreadPool pool(3);
  std::vector<float> y(kRows * kStride, -3.0f), row(kColumns);
  silu_mul(gate_up.data(), y.data(), kStride, kRows, kColumns, pool);
  for (int64_t i = 0; i < kRows; ++i) {
    const float* gate = gate_up.data() + i * 2 * kColumns;
    vector_kernels_scalar().silu_mul(gate, gate + kColumns, row.data(), kColumns);
    for (int64_t j = 0; j < kStride; ++j) {
      ASSERT_EQ(y[static_cast<size_t>(i * kStride + j)], j < kColumns ? row[static_cast<size_t>(j)] : -3.0f);
    }
  }
}

}  // namespace
}  // namespace quire
