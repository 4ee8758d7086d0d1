#include "kernels/linear/gpu/small_rows.h"

#include <algorithm>

#include "gpu_kernels/device_case.h"
#include "kernels/fill/gpu/fill.h"
#include "kernels/norm/gpu/rms_norm.h"
#include "share.h"

namespace quire::gpu {
namespace {

// Whether the product goes the way that every card has, or that of the card.
class SmallRows : public DeviceCase, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    DeviceCase::SetUp();
    if (IsSkipped()) return;
    processors_ = use_device().multiprocessors;
  }
  static bool anywhere() { return GetParam(); }
  void run(const SmallRowsProduct& product) {
    if (anywhere()) return small_rows_anywhere(product, stream());
    small_rows(product, processors_, stream());
  }
  void check(DType type, DType y_type, SmallRowsEnd end, int64_t m, int64_t n, int64_t k);

  int processors_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Ways, SmallRows, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "Anywhere" : "OfTheCard"; });

void SmallRows::check(DType type, DType y_type, SmallRowsEnd end, int64_t m, int64_t n, int64_t k) {
  const bool pairs = end == SmallRowsEnd::kSiluMul;
  const int64_t ldx = k + 16, width = pairs ? n / 2 : n, ldy = width + 5;
  const std::vector<std::byte> x = narrowed(type, random_floats(m * ldx, 1)),
                               before = narrowed(y_type, random_floats(m * ldy, 3));
  std::vector<float> small = random_floats(n * k, 2);
  for (float& value : small) value *= 0.02f;
  const std::vector<std::byte> w = narrowed(type, small);
  const std::vector<float> wide_x = widened(type, x), wide_w = widened(type, w), wide_y = widened(y_type, before);
  std::vector<double> sums(static_cast<size_t>(m * n)), sizes(sums.size());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      const float* a = wide_x.data() + i * ldx;
      const float* b = wide_w.data() + j * k;
      for (int64_t d = 0; d < k; ++d) {
        const double product = double{a[d]} * b[d];
        sum += product;
        size += std::fabs(product);
      }
      sums[static_cast<size_t>(i * n + j)] = sum;
      sizes[static_cast<size_t>(i * n + j)] = size;
    }
  }
  const DeviceMemory device_x = upload(x), device_w = upload(w);
  const double narrow = type == DType::kBF16 ? 0x1p-8 : 0x1p-11;
  const double rounding = y_type == DType::kF32 ? 1e-6 : narrow;
  stream().wait("test");
  for (const int repeat : {0, 1}) {
    const DeviceMemory y = upload(before);
    const SmallRowsProduct product{device_x.data(), ldx, device_w.data(), y.data(), ldy, m, n, k, type, y_type, end};
    const std::string what = std::string(dtype_name(type)) + " into " + std::string(dtype_name(y_type)) + " end " +
                             std::to_string(static_cast<int>(end)) + " m " + std::to_string(m) + " n " +
                             std::to_string(n) + " k " + std::to_string(k) + " " + std::to_string(repeat);
    EXPECT_TRUE(m > small_rows_most() || small_rows_fits(product)) << what;
    run(product);
    const std::vector<float> got = widened(y_type, download<std::byte>(y));
    int wrong = 0;
    std::string first;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < ldy; ++j) {
        const auto at = static_cast<size_t>(i * ldy + j);
        double expected = wide_y[at], limit = 0;  // past the end of a row nothing is written
        if (j < width && pairs) {
          const auto sum_at = static_cast<size_t>(i * n + j);
          const double gate = sums[sum_at], up = sums[sum_at + static_cast<size_t>(width)];
          expected = gate / (1 + std::exp(-gate)) * up;
          const double gate_error = narrow * std::fabs(gate) + 1e-6 * sizes[sum_at];
          const double up_error = narrow * std::fabs(up) + 1e-6 * sizes[sum_at + static_cast<size_t>(width)];
          limit = 1.02 * (rounding * std::fabs(expected) + 1.2 * gate_error * (std::fabs(up) + up_error) +
                          up_error * std::fabs(gate)) +
                  1e-6;
        } else if (j < width) {
          const auto sum_at = static_cast<size_t>(i * n + j);
          expected = sums[sum_at] + (end == SmallRowsEnd::kAdd ? expected : 0.0);
          limit = 1.01 * rounding * std::fabs(expected) + 1e-6 * sizes[sum_at];
        }
        if (!(std::fabs(got[at] - expected) <= limit) && ++wrong <= 5) {
          first += " [" + std::to_string(i) + "," + std::to_string(j) + "] " + std::to_string(got[at]) + " for " +
                   std::to_string(expected);
        }
      }
    }
    EXPECT_EQ(wrong, 0) << what << ":" << first;
  }
}

TEST_P(SmallRows, ProductsAreThoseOfTheHost) {
  constexpr std::pair<int64_t, int64_t> kShapes[] = {{16, 64},   {16, 8},     {17, 72},    {1, 520},     {33, 2048},
                                                     {40, 2056}, {96, 4096},  {250, 576},  {16, 14'336}, {272, 5000},
                                                     {8200, 64}, {3000, 584}, {2200, 4104}};
  for (const DType type : {DType::kBF16, DType::kF16}) {
    for (const auto& [all_n, k] : kShapes) {
      const int64_t n = all_n * k > 1'000'000 ? testing::share_of(all_n) : all_n;
      for (const int64_t m : {1, 3, 8}) {
        if (all_n * k > 1'000'000 && m != 8) continue;
        check(type, DType::kF32, m % 2 == 0 ? SmallRowsEnd::kAdd : SmallRowsEnd::kStore, m, n, k);
      }
      check(type, type, SmallRowsEnd::kStore, 5, std::min<int64_t>(n, 300), k);
      if (anywhere()) check(type, DType::kF32, SmallRowsEnd::kAdd, kSmallRowsAnywhere, std::min<int64_t>(n, 300), k);
    }
  }
}

TEST_P(SmallRows, OtherProductsAreRefused) {
  alignas(16) static std::byte place[16];
  const SmallRowsProduct good{place, 64, place, place, 32, 8, 32, 64, DType::kBF16, DType::kBF16, SmallRowsEnd::kStore};
  EXPECT_TRUE(small_rows_fits(good));
  const auto refused = [&](const auto& change) {
    SmallRowsProduct product = good;
    change(product);
    return !small_rows_fits(product);
  };
  EXPECT_TRUE(refused([](SmallRowsProduct& p) { p.m = small_rows_most() + 1; }));
  EXPECT_TRUE(refused([](SmallRowsProduct& p) { p.k = 60; }));
  EXPECT_TRUE(refused([](SmallRowsProduct& p) { p.ldx = 65; }));
  EXPECT_TRUE(refused([](SmallRowsProduct& p) { p.type = p.y_type = DType::kF32; }));
  EXPECT_TRUE(refused([](SmallRowsProduct& p) { p.y_type = DType::kF16; }));
  EXPECT_TRUE(refused([](SmallRowsProduct& p) { p.end = SmallRowsEnd::kAdd; }));
  EXPECT_TRUE(refused([](SmallRowsProduct& p) { p.end = SmallRowsEnd::kSiluMul, p.n = 24; }));
  EXPECT_TRUE(refused([](SmallRowsProduct& p) { p.w = place + 2; }));
}

TEST_P(SmallRows, GateAndUpMeetInTheEnd) {
  constexpr std::pair<int64_t, int64_t> kShapes[] = {{16, 64}, {48, 520}, {3072, 576}, {160, 4096}, {320, 6000}};
  for (const DType type : {DType::kBF16, DType::kF16}) {
    for (const auto& [all_n, k] : kShapes) {
      const int64_t n = all_n * k > 1'000'000 ? testing::share_of(all_n / 16) * 16 : all_n;
      for (const int64_t m : {1, 7, 8}) check(type, type, SmallRowsEnd::kSiluMul, m, n, k);
      if (anywhere()) check(type, type, SmallRowsEnd::kSiluMul, 13, n, k);
    }
  }
}

TEST_P(SmallRows, RowsDependNeitherOnOthersNorOnTheRun) {
  constexpr std::tuple<int64_t, int64_t, SmallRowsEnd> kShapes[] = {
      {4096, 4096, SmallRowsEnd::kStore}, {4096, 14'336, SmallRowsEnd::kStore}, {6144, 4096, SmallRowsEnd::kStore}};
  for (const auto& [all_n, k, end] : kShapes) {
    const int64_t n = testing::share_of(all_n);
    const DeviceMemory x(static_cast<size_t>(16 * k * 2)), w(static_cast<size_t>(n * k * 2)),
        y(static_cast<size_t>(16 * n * 4));
    fill_dummy(x.data(), DType::kBF16, 16 * k, 1, 0, stream());
    fill_dummy(w.data(), DType::kBF16, n * k, 2, 0, stream());
    stream().wait("test");
    std::vector<float> expected;
    for (const int64_t m : {8, 5, 1}) {
      const SmallRowsProduct product{x.data(), k, w.data(), y.data(), n, m, n, k, DType::kBF16, DType::kF32, end};
      const Graph graph = stream().capture([&] {
        for (int i = 0; i < 3; ++i) run(product);
      });
      for (int i = 0; i < 3; ++i) {
        stream().zero(y.data(), y.bytes());
        if (i == 0) run(product);
        if (i > 0) stream().launch(graph, "test");
        std::vector<float> got = download<float>(y);
        got.resize(static_cast<size_t>(m * n));
        if (expected.empty()) expected = got;
        int64_t different = 0, first = -1;
        for (size_t j = 0; j < got.size(); ++j) {
          if (std::memcmp(&got[j], &expected[j], 4) != 0 && different++ == 0) first = static_cast<int64_t>(j);
        }
        EXPECT_EQ(different, 0) << n << "x" << k << " m " << m << " first at " << first;
      }
    }
  }
}

// Each product reads what the one before it wrote, and the last one adds to what the first one read.
TEST_P(SmallRows, ChainsThatOverlapSeeEachOthersResults) {
  const int64_t n = std::max<int64_t>(256, testing::share_of<int64_t>(2048) / 64 * 64);
  const DeviceMemory w(2 * n * n * 2), a(8 * n * 2), b(8 * n * 2), sum(8 * n * 4);
  fill_dummy(w.data(), DType::kBF16, 2 * n * n, 2, 0, stream());
  fill_dummy(a.data(), DType::kBF16, 8 * n, 3, 0, stream());
  stream().wait("test");
  const DeviceMemory scale = upload(std::vector<float>(n, 1.0f));
  const auto* second = static_cast<const std::byte*>(w.data()) + n * n * 2;
  const auto chain = [&](bool alone) {
    for (int i = 0; i < 6; ++i) {
      run({a.data(), n, w.data(), b.data(), n, 8, n, n, DType::kBF16, DType::kBF16, SmallRowsEnd::kStore});
      if (alone) stream().wait("test");
      run({b.data(), n, second, sum.data(), n, 8, n, n, DType::kBF16, DType::kF32, SmallRowsEnd::kAdd});
      if (alone) stream().wait("test");
      rms_norm(static_cast<const float*>(sum.data()), static_cast<const float*>(scale.data()), 1e-5f, a.data(),
               DType::kBF16, 8, n, stream());
      if (alone) stream().wait("test");
    }
  };
  const std::vector<std::byte> start = download<std::byte>(a);
  std::vector<float> results[2];
  for (const bool alone : {true, false}) {
    stream().copy_to_device(a.data(), start.data(), start.size(), "test");
    stream().zero(sum.data(), sum.bytes());
    stream().wait("test");
    chain(alone);
    results[alone ? 0 : 1] = download<float>(sum);
  }
  int different = 0;
  for (size_t i = 0; i < results[0].size(); ++i) {
    if (std::memcmp(&results[0][i], &results[1][i], 4) != 0) ++different;
  }
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace quire::gpu
