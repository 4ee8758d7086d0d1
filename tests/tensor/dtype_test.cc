#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

std::vector<uint8_t> from_hex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

DType dtype_of(const std::string& name) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K,
                            DType::kQ5_K, DType::kQ6_K}) {
    if (dtype_name(dtype) == name) return dtype;
  }
  throw std::runtime_error("unknown type " + name);
}

// tools/make_dequant_golden.py made the file. Our sums differ from its in order, so a few units of rounding are
// allowed.
TEST(Dequantize, BlocksAsTheGgufPackageReadsThem) {
  std::ifstream file(QUIRE_TEST_DATA "/tensor/dequant.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 8U);
  for (const auto& c : cases) {
    const DType dtype = dtype_of(c["type"]);
    const std::vector<uint8_t> blocks = from_hex(c["hex"]), raw = from_hex(c["values_f32_hex"]);
    std::vector<float> expected(raw.size() / sizeof(float)), values(expected.size());
    std::memcpy(expected.data(), raw.data(), raw.size());
    ASSERT_EQ(storage_bytes(dtype, static_cast<int64_t>(expected.size())), static_cast<int64_t>(blocks.size()));
    dequantize(dtype, blocks.data(), values.data(), static_cast<int64_t>(values.size()));
    float largest = 0;
    for (const float v : expected) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], expected[i], 2 * std::numeric_limits<float>::epsilon() * largest)
          << dtype_name(dtype) << " element " << i;
    }
  }
}

TEST(Half, EveryPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value)) {
      EXPECT_TRUE((half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0);
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
      continue;
    }
    EXPECT_EQ(f32_to_f16(value), half) << bits;
    const int exponent = (half >> 10) & 31, mantissa = half & 0x3ff;
    const double sign = (half & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31) {
      EXPECT_EQ(value, static_cast<float>(sign) * std::numeric_limits<float>::infinity());
    } else {
      EXPECT_EQ(value, sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25)))
          << bits;
    }
  }
}

// The nearest half of a float by search in double; ties go to the even pattern.
uint16_t nearest_half(float value) {
  uint16_t below = 0, above = 0x7c00;  // patterns of magnitudes, in order
  const double magnitude = std::abs(static_cast<double>(value));
  while (above - below > 1) {
    const auto middle = static_cast<uint16_t>((below + above) / 2);
    (static_cast<double>(f16_to_f32(middle)) <= magnitude ? below : above) = middle;
  }
  const double low = f16_to_f32(below), high = above == 0x7c00 ? 65536.0 : static_cast<double>(f16_to_f32(above));
  uint16_t best = below;
  if (magnitude - low > high - magnitude || (magnitude - low == high - magnitude && (below & 1) != 0)) best = above;
  return static_cast<uint16_t>(best | (std::signbit(value) ? 0x8000 : 0));
}

TEST(Half, RoundsToNearestEven) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponents(-30, 18);
  for (int i = 0; i < 50000; ++i) {
    const float value = (i % 2 == 0 ? 1.0f : -1.0f) * std::exp2(exponents(random));
    ASSERT_EQ(f32_to_f16(value), nearest_half(value)) << value;
  }
  // Exactly between two halves, subnormal ones included, and the edge of infinity.
  for (uint32_t bits = 0; bits < 0x7c00; bits += 7) {
    const auto half = static_cast<uint16_t>(bits);
    const float high = bits + 1 == 0x7c00 ? 65536.0f : f16_to_f32(static_cast<uint16_t>(bits + 1));
    const float middle = (f16_to_f32(half) + high) / 2;
    ASSERT_EQ(f32_to_f16(middle), (bits & 1) != 0 ? bits + 1 : bits);
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
}

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000U)), 0x3f80);  // a tie, to even
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000U)), 0x3f82);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001U)))));
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bf16_to_f32(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(f32_to_bf16(value), bits);
    }
  }
}

TEST(Dequantize, EightBitFloats) {
  const std::vector<std::pair<uint8_t, float>> e4m3 = {{0x00, 0.0f},    {0x01, 0x1p-9f}, {0x07, 0.013671875f},
                                                       {0x08, 0x1p-6f}, {0x38, 1.0f},    {0x7e, 448.0f},
                                                       {0xb8, -1.0f},   {0x78, 256.0f}};
  const std::vector<std::pair<uint8_t, float>> e5m2 = {
      {0x01, 0x1p-16f}, {0x04, 0x1p-14f}, {0x3c, 1.0f},
      {0x7b, 57344.0f}, {0xbc, -1.0f},    {0x7c, std::numeric_limits<float>::infinity()}};
  float value = 0;
  for (const auto& [bits, expected] : e4m3) {
    dequantize(DType::kF8E4M3, &bits, &value, 1);
    EXPECT_EQ(value, expected) << int{bits};
  }
  for (const auto& [bits, expected] : e5m2) {
    dequantize(DType::kF8E5M2, &bits, &value, 1);
    EXPECT_EQ(value, expected) << int{bits};
  }
  const uint8_t nan = 0xff;
  dequantize(DType::kF8E4M3, &nan, &value, 1);
  EXPECT_TRUE(std::isnan(value));
}

TEST(Dequantize, PlainTypes) {
  const float floats[] = {1.5f, -2.0f};
  const uint16_t halves[] = {0x3c00, 0xc000}, bfloats[] = {0x3fc0, 0xc000};
  const int8_t bytes[] = {-128, 127};
  float out[2];
  dequantize(DType::kF32, floats, out, 2);
  EXPECT_EQ(out[1], -2.0f);
  dequantize(DType::kF16, halves, out, 2);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  dequantize(DType::kBF16, bfloats, out, 2);
  EXPECT_EQ(out[0], 1.5f);
  dequantize(DType::kI8, bytes, out, 2);
  EXPECT_EQ(out[0], -128.0f);
  EXPECT_EQ(out[1], 127.0f);
  EXPECT_THROW(dequantize(DType::kI64, floats, out, 1), std::logic_error);
}

// Every code comes back, and whatever lies between two codes goes to the nearer one, ties to the even code.
template <class To, class From>
void expect_nearest(To to, From from, uint8_t largest) {
  for (int code = 0; code < largest; ++code) {
    const float low = from(static_cast<uint8_t>(code)), high = from(static_cast<uint8_t>(code + 1));
    const float middle = 0.5f * (low + high);  // exact
    for (const float sign : {1.0f, -1.0f}) {
      const int bit = sign < 0 ? 0x80 : 0;
      EXPECT_EQ(to(sign * low), code | bit);
      EXPECT_EQ(to(sign * std::nextafter(middle, low)), code | bit) << middle;
      EXPECT_EQ(to(sign * std::nextafter(middle, high)), (code + 1) | bit) << middle;
      EXPECT_EQ(to(sign * middle), (code + code % 2) | bit) << middle;
    }
  }
  EXPECT_EQ(to(from(largest)), largest);
  EXPECT_EQ(to(1e30f), largest);
  EXPECT_EQ(to(-1e30f), largest | 0x80);
  EXPECT_TRUE(std::isnan(from(to(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(DType, EightBitFloatsRoundToNearestEven) {
  expect_nearest(f32_to_f8e4m3, f8e4m3_to_f32, 0x7e);
  expect_nearest(f32_to_f8e5m2, f8e5m2_to_f32, 0x7b);
  EXPECT_TRUE(std::isnan(f8e4m3_to_f32(f32_to_f8e4m3(INFINITY))));
  EXPECT_EQ(f8e5m2_to_f32(f32_to_f8e5m2(-INFINITY)), -INFINITY);
}

}  // namespace
}  // namespace quire
