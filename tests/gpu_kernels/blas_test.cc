#include "gpu/blas.h"

#include <cstdio>

#include "base/error.h"
#include "gpu_kernels/device_case.h"
#include "kernels/fill/gpu/fill.h"

namespace quire::gpu {
namespace {

class BlasCase : public DeviceCase {
 protected:
  void SetUp() override {
    DeviceCase::SetUp();
    if (!IsSkipped()) blas_ = std::make_unique<Blas>(use_device());
  }
  std::unique_ptr<Blas> blas_;
};

constexpr std::tuple<DType, DType, bool> kCombinations[] = {
    {DType::kF32, DType::kF32, false},  {DType::kF32, DType::kF32, true},  {DType::kF16, DType::kF16, false},
    {DType::kF16, DType::kF32, false},  {DType::kF16, DType::kF32, true},  {DType::kBF16, DType::kBF16, false},
    {DType::kBF16, DType::kF32, false}, {DType::kBF16, DType::kF32, true},
};

TEST_F(BlasCase, ProductsAreThoseOfTheHost) {
  constexpr std::tuple<int64_t, int64_t, int64_t> kShapes[] = {
      {1, 8, 8}, {1, 64, 576}, {3, 17, 40}, {8, 136, 64}, {64, 72, 96}, {17, 1, 1000}, {129, 33, 256}, {5, 3, 33}};
  for (const auto& [type, y_type, accumulate] : kCombinations) {
    for (const auto& [m, n, k] : kShapes) {
      const int64_t ldx = k + (k % 8 == 0 ? 16 : 3), ldy = n + 5;
      const std::vector<std::byte> x = narrowed(type, random_floats(m * ldx, 1)),
                                   w = narrowed(type, random_floats(n * k, 2));
      const std::vector<std::byte> before = narrowed(y_type, random_floats(m * ldy, 3));
      const std::vector<float> wide_x = widened(type, x), wide_w = widened(type, w), wide_y = widened(y_type, before);
      const DeviceMemory device_x = upload(x), device_w = upload(w), y = upload(before);
      const std::string what = std::string(dtype_name(type)) + " into " + std::string(dtype_name(y_type)) + " " +
                               std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
      try {
        blas_->matmul(device_x.data(), ldx, device_w.data(), y.data(), ldy, m, n, k, type, y_type, accumulate,
                      stream());
      } catch (const std::exception& error) {
        ADD_FAILURE() << what << ": " << error.what();
        continue;
      }
      const std::vector<float> got = widened(y_type, download<std::byte>(y));
      int wrong = 0;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < ldy; ++j) {
          const auto at = static_cast<size_t>(i * ldy + j);
          double sum = accumulate ? wide_y[at] : 0.0, size = 0.0;
          for (int64_t d = 0; d < k && j < n; ++d) {
            const double product =
                double{wide_x[static_cast<size_t>(i * ldx + d)]} * wide_w[static_cast<size_t>(j * k + d)];
            sum += product;
            size += std::fabs(product);
          }
          if (j >= n) sum = wide_y[at];  // past the end of a row nothing is written
          const double rounding = y_type == DType::kBF16 ? 0x1p-8 : y_type == DType::kF16 ? 0x1p-11 : 1e-6;
          const double limit = j >= n ? 0.0 : 1.01 * rounding * std::fabs(sum) + 1e-6 * size;
          if (!(std::fabs(got[at] - sum) <= limit) && ++wrong <= 3) {
            ADD_FAILURE() << what << " [" << i << "," << j << "] " << got[at] << " for " << sum;
          }
        }
      }
    }
  }
}

TEST_F(BlasCase, AProductIsCapturedAndTunedWithoutAChangeOfItsResult) {
  constexpr int64_t kM = 8, kN = 4096, kK = 4096;
  const DeviceMemory x(kM * kK * 2), w(kN * kK * 2), y(kM * kN * 4);
  fill_dummy(x.data(), DType::kBF16, kM * kK, 1, 0, stream());
  fill_dummy(w.data(), DType::kBF16, kN * kK, 2, 0, stream());
  const auto product = [&] {
    blas_->matmul(x.data(), kK, w.data(), y.data(), kN, kM, kN, kK, DType::kBF16, DType::kF32, false, stream());
  };
  product();
  const std::vector<float> first = download<float>(y);
  const Graph graph = stream().capture(product);
  stream().zero(y.data(), y.bytes());
  stream().launch(graph, "product");
  EXPECT_EQ(download<float>(y), first);
  const void* weights[] = {w.data()};
  blas_->tune(x.data(), kK, weights, y.data(), kN, kM, kN, kK, DType::kBF16, DType::kF32, false, stream());
  product();
  const std::vector<float> tuned = download<float>(y);
  float largest = 0;
  for (const float value : first) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(tuned[i], first[i], 1e-5f * largest) << i;
}

TEST_F(BlasCase, DISABLED_TimesOfTheLinearsOfLlama8B) {
  constexpr std::tuple<int64_t, int64_t, DType, bool> kLinears[] = {{6144, 4096, DType::kBF16, false},
                                                                    {4096, 4096, DType::kF32, true},
                                                                    {28'672, 4096, DType::kBF16, false},
                                                                    {4096, 14'336, DType::kF32, true},
                                                                    {128'256, 4096, DType::kF32, false}};
  constexpr int64_t kMost = 2048;
  const DeviceMemory x(kMost * 14'336 * 2), y(kMost * 128'256 * 4);
  fill_dummy(x.data(), DType::kBF16, kMost * 14'336, 1, 0, stream());
  for (const auto& [n, k, y_type, accumulate] : kLinears) {
    const int64_t bytes = n * k * 2, copies = (int64_t{400} << 20) / bytes + 1;
    const DeviceMemory memory(static_cast<size_t>(copies * bytes));
    fill_dummy(memory.data(), DType::kBF16, copies * n * k, 2, 0, stream());
    std::vector<const void*> weights;
    for (int64_t i = 0; i < copies; ++i) weights.push_back(static_cast<std::byte*>(memory.data()) + i * bytes);
    for (const int64_t m : {int64_t{1}, int64_t{8}, int64_t{64}, kMost}) {
      const auto time = [&] {
        const auto all = [&] {
          for (const void* w : weights) {
            blas_->matmul(x.data(), k, w, y.data(), n, m, n, k, DType::kBF16, y_type, accumulate, stream());
          }
        };
        all();
        const Graph graph = stream().capture(all);
        double best = 1e30;
        for (int i = 0; i < 3; ++i) {
          const Event begin, end;
          stream().record(begin);
          stream().launch(graph, "timing");
          stream().record(end);
          stream().wait(end, "timing");
          best =
              std::min(best, 1e3 * static_cast<double>(milliseconds_between(begin, end)) / static_cast<double>(copies));
        }
        return best;
      };
      const double first = time();
      blas_->tune(x.data(), k, weights, y.data(), n, m, n, k, DType::kBF16, y_type, accumulate, stream());
      const double us = time();
      const double moved = static_cast<double>(bytes + m * k * 2 + m * n * block_bytes(y_type) * (accumulate ? 2 : 1));
      std::printf("%6ld x %5ld m %4ld: first %9.1f us, tuned %9.1f us  %5.2f TB/s %6.1f TFLOP/s\n",
                  static_cast<long>(n), static_cast<long>(k), static_cast<long>(m), first, us, moved / us / 1e6,
                  2e-6 * static_cast<double>(m * n * k) / us);
    }
  }
}

TEST(BlasWithoutDevice, SaysWhichLibraryIsWanted) {
  if (why_no_device().empty()) GTEST_SKIP() << "there is a GPU";
  DeviceInfo old_card;
  old_card.name = "An old card";
  old_card.architecture = "compute capability 7.5";
  old_card.major = 7;
  try {
    const Blas blas(old_card);
    FAIL() << "products on a device that isn't there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnavailable) << error.what();
    EXPECT_EQ(error.param(), "device");
    const std::string library = platform() == "HIP" ? "hipBLASLt" : "cuBLASLt";
    EXPECT_EQ(std::string(error.what()).find("no products on the GPU: " + library + ": "), 0u) << error.what();
  }
}

}  // namespace
}  // namespace quire::gpu
