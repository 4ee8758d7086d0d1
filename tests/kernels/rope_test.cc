#include <gtest/gtest.h>

#include <cmath>

#include "kernels/rope/rope.h"
#include "kernels/test_values.h"

namespace quire {
namespace {

TEST(Rope, AnglesAreExactToAFloatAtLargePositions) {
  const std::vector<float> inv_freq = {1.0f, 0.75f, 1e-3f};
  const std::vector<int32_t> positions = {0, 1, 131071, 1000000};
  ThreadPool pool(2);
  std::vector<float> cos(12), sin(12);
  for (const double scale : {1.0, 1.25}) {
    rope_angles(inv_freq.data(), 3, positions.data(), 4, scale, cos.data(), sin.data(), pool);
    for (size_t i = 0; i < 12; ++i) {
      const double angle = static_cast<double>(positions[i / 3]) * static_cast<double>(inv_freq[i % 3]);
      EXPECT_NEAR(cos[i], scale * std::cos(angle), scale * 0x1p-24);
      EXPECT_NEAR(sin[i], scale * std::sin(angle), scale * 0x1p-24);
    }
  }
}

TEST(Rope, MatchesDoubleInBothStylesOnEveryInstructionSet) {
  for (const int64_t half : {1, 4, 8, 15, 16, 17, 32, 48}) {
    std::vector<float> cos, sin;
    for (int64_t i = 0; i < half; ++i) {
      cos.push_back(static_cast<float>(std::cos(0.37 * static_cast<double>(i + 1))));
      sin.push_back(static_cast<float>(std::sin(0.37 * static_cast<double>(i + 1))));
    }
    const std::vector<float> x = random_floats(2 * half, 9);
    for (const bool interleaved : {false, true}) {
      std::vector<float> first;
      for (const auto& [name, kernels] : all_vector_kernels()) {
        std::vector<float> y = x;
        (interleaved ? kernels->rope_pairs : kernels->rope_halves)(y.data(), cos.data(), sin.data(), half);
        for (int64_t i = 0; i < half; ++i) {
          const auto a = static_cast<size_t>(interleaved ? 2 * i : i),
                     b = static_cast<size_t>(interleaved ? 2 * i + 1 : i + half);
          const double c = cos[static_cast<size_t>(i)], s = sin[static_cast<size_t>(i)];
          const double bound = 2 * 0x1p-24 * (std::fabs(x[a]) + std::fabs(x[b]));
          ASSERT_NEAR(y[a], x[a] * c - x[b] * s, bound) << name << ", half " << half;
          ASSERT_NEAR(y[b], x[b] * c + x[a] * s, bound) << name << ", half " << half;
        }
        if (first.empty()) first = y;
        EXPECT_EQ(y, first) << name << ", half " << half;
      }
    }
  }
}

TEST(Rope, RotatesTheHeadsOfEachRowOnly) {
  constexpr int64_t kRows = 40, kHeads = 5, kHalf = 16, kStride = 2 * kHalf * kHeads + 7;
  const std::vector<float> x = random_floats(kRows * kStride, 3);
  std::vector<float> cos(kRows * kHalf, 0.0f), sin(kRows * kHalf, 1.0f);  // a quarter turn: (a, b) becomes (-b, a)
  for (const int workers : {1, 3}) {
    ThreadPool pool(workers);
    std::vector<float> y = x;
    rope(y.data(), kStride, kHeads, kRows, cos.data(), sin.data(), kHalf, false, pool);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kStride; ++j) {
        const auto at = static_cast<size_t>(i * kStride + j);
        const bool head = j < 2 * kHalf * kHeads, low = j % (2 * kHalf) < kHalf;
        ASSERT_EQ(y[at], !head ? x[at] : low ? -x[at + kHalf] : x[at - kHalf]);
      }
    }
  }
}

}  // namespace
}  // namespace quire
