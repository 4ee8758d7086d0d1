#include <limits>

#include "checkpoint/dummy.h"
#include "gpu_kernels/conversions.h"
#include "gpu_kernels/device_case.h"
#include "kernels/fill/gpu/fill.h"
#include "share.h"

namespace quire::gpu {
namespace {

class Numeric : public DeviceCase {};
class Fill : public DeviceCase {};

constexpr DType kNarrowTypes[] = {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};

TEST_F(Numeric, EveryPatternOfANarrowTypeWidensAsOnTheHost) {
  for (const DType dtype : kNarrowTypes) {
    const int64_t count = block_bytes(dtype) == 1 ? 256 : 65536;
    std::vector<std::byte> patterns;
    for (int64_t i = 0; i < count; ++i) {
      patterns.push_back(static_cast<std::byte>(i));
      if (block_bytes(dtype) == 2) patterns.push_back(static_cast<std::byte>(i >> 8));
    }
    const DeviceMemory source = upload(patterns);
    const DeviceMemory result(static_cast<size_t>(count) * sizeof(float));
    widen(dtype, source.data(), static_cast<float*>(result.data()), count, stream());
    expect_same(DType::kF32, download<std::byte>(result), narrowed(DType::kF32, widened(dtype, patterns)),
                std::string(dtype_name(dtype)));
  }
}

// Every upper half of a float with lower halves at and beside the ties, and every value half way between two codes.
std::vector<float> awkward_floats() {
  std::vector<float> values;
  const auto stride = static_cast<uint32_t>(testing::case_stride());
  for (uint32_t high = 0; high < 0x10000; high += stride) {
    for (const uint32_t low :
         {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xf000u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  std::mt19937 random(3);
  const int count = testing::share_of(1'000'000);
  for (int i = 0; i < count; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(random()) * 0x1p-31f * 1e-4f - 1e-4f);
  return values;
}

TEST_F(Numeric, FloatsNarrowAsOnTheHost) {
  const std::vector<float> values = awkward_floats();
  const auto count = static_cast<int64_t>(values.size());
  const DeviceMemory source = upload(values);
  for (const DType dtype : kNarrowTypes) {
    const DeviceMemory result(values.size() * static_cast<size_t>(block_bytes(dtype)));
    narrow(dtype, static_cast<const float*>(source.data()), result.data(), count, stream());
    expect_same(dtype, download<std::byte>(result), narrowed(dtype, values), "narrow");
  }
}

TEST_F(Numeric, IntegersSaturateAndNaNIsTheLargest) {
  std::vector<float> values = awkward_floats();
  for (int i = -300; i <= 300; ++i) values.push_back(static_cast<float>(i) * 0.5f);
  const DeviceMemory source = upload(values);
  const DeviceMemory result(values.size());
  narrow(DType::kI8, static_cast<const float*>(source.data()), result.data(), static_cast<int64_t>(values.size()),
         stream());
  const auto got = download<int8_t>(result);
  int different = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const float x = values[i];
    const auto expected =
        static_cast<int8_t>(std::isnan(x) ? 127.0f : std::nearbyint(std::fmin(std::fmax(x, -127.0f), 127.0f)));
    if (got[i] != expected && ++different <= 5) ADD_FAILURE() << x << " became " << int{got[i]};
  }
}

TEST_F(Fill, DummyWeightsAreThoseOfTheHost) {
  const uint64_t key = dummy_key(7, "model.layers.0.mlp.up_proj.weight");
  constexpr int64_t kHalf = int64_t{1} << 32;
  for (const DType dtype : kActivationTypes) {
    const int64_t size = block_bytes(dtype);
    for (const int64_t first : {int64_t{0}, int64_t{5}, kHalf - 3, kHalf - 1000, kHalf - 100'001, 5 * kHalf + 17}) {
      for (const int64_t count : {1, 7, 8, 9, 1000, 100'003}) {
        for (const int64_t offset : {0, 1, 3}) {
          std::vector<std::byte> expected(static_cast<size_t>((count + 8) * size), std::byte{0x5a});
          const DeviceMemory result = upload(expected);
          fill_dummy(key, first, count, dtype, expected.data() + offset * size);
          fill_dummy(static_cast<std::byte*>(result.data()) + offset * size, dtype, count, key, first, stream());
          expect_same(dtype, download<std::byte>(result), expected,
                      std::to_string(count) + " from " + std::to_string(first) + " at " + std::to_string(offset));
        }
      }
    }
  }
}

TEST_F(Fill, ManyMoreElementsThanThreads) {
  const int64_t count = testing::share_of<int64_t>(50'000'003);
  std::vector<std::byte> expected(static_cast<size_t>(count * 2));
  fill_dummy(99, 12, count, DType::kBF16, expected.data());
  const DeviceMemory result(expected.size());
  fill_dummy(result.data(), DType::kBF16, count, 99, 12, stream());
  expect_same(DType::kBF16, download<std::byte>(result), expected, "fill");
}

TEST_F(Fill, ConversionsAreThoseOfTheHost) {
  for (const int64_t count : {1, 7, 8, 1003, 200'007}) {
    const std::vector<float> values = random_floats(count + 8, 5);
    for (const DType from : kActivationTypes) {
      const std::vector<std::byte> source = narrowed(from, values);
      const DeviceMemory in = upload(source);
      for (const DType to : kActivationTypes) {
        for (const auto& [in_offset, out_offset] :
             {std::pair<int64_t, int64_t>{0, 0}, {4, 4}, {1, 0}, {0, 3}, {8, 8}}) {
          std::vector<std::byte> expected(static_cast<size_t>((count + 8) * block_bytes(to)), std::byte{0x5a});
          const DeviceMemory out = upload(expected);
          const std::vector<float> wide = widened(from, source);
          for (int64_t i = 0; i < count; ++i) {
            put_element(to, wide[static_cast<size_t>(in_offset + i)],
                        expected.data() + (out_offset + i) * block_bytes(to));
          }
          convert(static_cast<std::byte*>(in.data()) + in_offset * block_bytes(from), from,
                  static_cast<std::byte*>(out.data()) + out_offset * block_bytes(to), to, count, stream());
          expect_same(to, download<std::byte>(out), expected,
                      std::string(dtype_name(from)) + " to " + std::string(dtype_name(to)));
        }
      }
    }
  }
  const std::vector<std::byte> halves = narrowed(DType::kF16, random_floats(10'000, 6));
  const DeviceMemory in_place = upload(halves);
  convert(in_place.data(), DType::kF16, in_place.data(), DType::kBF16, 10'000, stream());
  expect_same(DType::kBF16, download<std::byte>(in_place), narrowed(DType::kBF16, widened(DType::kF16, halves)),
              "in place");
}

}  // namespace
}  // namespace quire::gpu
