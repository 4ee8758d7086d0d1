#pragma once
// What the tests of GPU kernels share: a device or a skip, arrays there and back, comparisons that name the first
// differences.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/memory.h"
#include "gpu/stream.h"
#include "tensor/dtype.h"

namespace quire::gpu {

class DeviceCase : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
    use_device();
    stream_ = std::make_unique<Stream>();
  }

  template <class T>
  DeviceMemory upload(const std::vector<T>& values) {
    DeviceMemory memory(values.size() * sizeof(T));
    if (!values.empty()) stream_->copy_to_device(memory.data(), values.data(), memory.bytes(), "test");
    return memory;
  }

  template <class T>
  std::vector<T> download(const DeviceMemory& memory) {
    std::vector<T> values(memory.bytes() / sizeof(T));
    if (!values.empty()) stream_->copy_to_host(values.data(), memory.data(), memory.bytes(), "test");
    stream_->wait("test");
    return values;
  }

  Stream& stream() { return *stream_; }

 private:
  std::unique_ptr<Stream> stream_;
};

constexpr DType kActivationTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// n floats, standard normal with a few large outliers.
inline std::vector<float> random_floats(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random) * (random() % 97 == 0 ? 20.0f : 1.0f);
  return values;
}

// One element of a type as bytes, and back.
inline void put_element(DType dtype, float value, std::byte* to) {
  const auto put = [&](auto bits) { std::memcpy(to, &bits, sizeof bits); };
  switch (dtype) {
    case DType::kF16:
      return put(f32_to_f16(value));
    case DType::kBF16:
      return put(f32_to_bf16(value));
    case DType::kF8E4M3:
      return put(f32_to_f8e4m3(value));
    case DType::kF8E5M2:
      return put(f32_to_f8e5m2(value));
    default:
      return put(value);
  }
}

inline std::vector<std::byte> narrowed(DType dtype, const std::vector<float>& values) {
  const auto size = static_cast<size_t>(block_bytes(dtype));
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) put_element(dtype, values[i], bytes.data() + i * size);
  return bytes;
}

inline std::vector<float> widened(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(block_bytes(dtype)));
  dequantize(dtype, bytes.data(), values.data(), static_cast<int64_t>(values.size()));
  return values;
}

// The same bits, or both NaN.
inline bool same_value(DType dtype, const std::byte* a, const std::byte* b) {
  if (std::memcmp(a, b, static_cast<size_t>(block_bytes(dtype))) == 0) return true;
  float x = 0, y = 0;
  dequantize(dtype, a, &x, 1);
  dequantize(dtype, b, &y, 1);
  return std::isnan(x) && std::isnan(y);
}

inline void expect_same(DType dtype, const std::vector<std::byte>& got, const std::vector<std::byte>& expected,
                        const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  const auto size = static_cast<size_t>(block_bytes(dtype));
  int64_t different = 0;
  std::string first;
  for (size_t i = 0; i < got.size(); i += size) {
    if (same_value(dtype, got.data() + i, expected.data() + i) || ++different > 5) continue;
    float x = 0, y = 0;
    dequantize(dtype, got.data() + i, &x, 1);
    dequantize(dtype, expected.data() + i, &y, 1);
    first += " [" + std::to_string(i / size) + "] " + std::to_string(x) + " for " + std::to_string(y) + ";";
  }
  EXPECT_EQ(different, 0) << what << ", " << dtype_name(dtype) << " of " << got.size() / size << ":" << first;
}

// Values of `dtype` that are expected[i] within `relative`, before they are rounded.
inline void expect_close(DType dtype, const std::vector<std::byte>& got, const std::vector<float>& expected,
                         float relative, const std::string& what) {
  const std::vector<float> values = widened(dtype, got);
  ASSERT_EQ(values.size(), expected.size()) << what;
  const float rounding = dtype == DType::kBF16 ? 0x1p-8f : dtype == DType::kF16 ? 0x1p-11f : 0x1p-24f;
  const float smallest = dtype == DType::kF16 ? 0x1p-25f : 1e-30f;
  int64_t different = 0;
  std::string first;
  for (size_t i = 0; i < values.size(); ++i) {
    const float limit = (rounding * 1.001f + relative) * std::fabs(expected[i]) + smallest;
    const bool overflows = dtype == DType::kF16 && std::fabs(expected[i]) > 65500;
    if (overflows || std::fabs(values[i] - expected[i]) <= limit || ++different > 5) continue;
    first += " [" + std::to_string(i) + "] " + std::to_string(values[i]) + " for " + std::to_string(expected[i]) + ";";
  }
  EXPECT_EQ(different, 0) << what << ", " << dtype_name(dtype) << " of " << values.size() << ":" << first;
}

}  // namespace quire::gpu
