#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/kv_write/kv_write.h"
#include "kernels/test_values.h"

namespace quire {
namespace {

uint32_t bits_of(float value, DType dtype) {
  if (dtype == DType::kF16) return f32_to_f16(value);
  return dtype == DType::kBF16 ? f32_to_bf16(value) : std::bit_cast<uint32_t>(value);
}

TEST(KvWrite, PutsEveryElementInItsPlaceAndNothingElse) {
  constexpr int64_t kRows = 21, kLdk = 200, kLdv = 220;
  ThreadPool pool(3);
  for (const KvLayout layout : {KvLayout::kPlain, KvLayout::kShuffle}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int32_t head_dim : {8, 24, 64}) {
        PagedKv kv{nullptr, nullptr, dtype, layout, 8, 3, head_dim, 5};
        constexpr std::byte kUntouched{0x5a};
        std::vector<std::byte> k_plane(static_cast<size_t>(plane_bytes(kv)), kUntouched), v_plane = k_plane;
        kv.k = k_plane.data();
        kv.v = v_plane.data();
        const std::vector<float> k = random_floats(kRows * kLdk, 1), v = random_floats(kRows * kLdv, 2);
        std::vector<int64_t> slots;
        for (int64_t i = 0; i < kRows; ++i) slots.push_back(i % 4 == 3 ? -1 : i * 17 % 40);
        kv_write(k.data(), kLdk, v.data(), kLdv, slots.data(), kRows, kv, pool);

        std::vector<std::byte> k_expected(k_plane.size(), kUntouched), v_expected = k_expected;
        const auto size = static_cast<size_t>(block_bytes(dtype));
        const bool plain = layout == KvLayout::kPlain;
        for (int64_t i = 0; i < kRows; ++i) {
          const int64_t slot = slots[static_cast<size_t>(i)];
          if (slot < 0) continue;
          for (int64_t head = 0; head < 3; ++head) {
            for (int64_t d = 0; d < head_dim; ++d) {
              const int64_t block = slot / 8, offset = slot % 8;
              const uint32_t k_bits = bits_of(k[static_cast<size_t>(i * kLdk + head * head_dim + d)], dtype);
              const uint32_t v_bits = bits_of(v[static_cast<size_t>(i * kLdv + head * head_dim + d)], dtype);
              const int64_t k_at =
                  plain ? PlainLayout::k(kv, block, offset, head, d) : ShuffleLayout::k(kv, block, offset, head, d);
              const int64_t v_at =
                  plain ? PlainLayout::v(kv, block, offset, head, d) : ShuffleLayout::v(kv, block, offset, head, d);
              std::memcpy(k_expected.data() + static_cast<size_t>(k_at) * size, &k_bits, size);
              std::memcpy(v_expected.data() + static_cast<size_t>(v_at) * size, &v_bits, size);
            }
          }
        }
        EXPECT_EQ(k_plane, k_expected) << dtype_name(dtype) << ", head_dim " << head_dim << ", plain " << plain;
        EXPECT_EQ(v_plane, v_expected) << dtype_name(dtype) << ", head_dim " << head_dim << ", plain " << plain;
      }
    }
  }
}

TEST(KvWrite, CopiesWholeBlocks) {
  PagedKv kv{nullptr, nullptr, DType::kF16, KvLayout::kShuffle, 8, 2, 16, 3};
  std::vector<std::byte> k(static_cast<size_t>(plane_bytes(kv))), v = k;
  for (size_t i = 0; i < k.size(); ++i) {
    k[i] = static_cast<std::byte>(i * 7 + i / 256);
    v[i] = static_cast<std::byte>(i * 11 + i / 256);
  }
  kv.k = k.data();
  kv.v = v.data();
  const std::vector<std::byte> k_before = k, v_before = v;
  kv_copy_block(kv, 2, 0);
  const auto block = static_cast<std::ptrdiff_t>(k.size() / 3);
  EXPECT_TRUE(std::equal(k.begin(), k.begin() + block, k_before.begin() + 2 * block));
  EXPECT_TRUE(std::equal(v.begin(), v.begin() + block, v_before.begin() + 2 * block));
  EXPECT_TRUE(std::equal(k.begin() + block, k.end(), k_before.begin() + block));
}

// Ties, subnormals, overflow and NaN: the vector conversions agree with the ones of tensor/dtype.h.
TEST(Conversions, AgreeWithTheScalarOnes) {
  std::vector<float> values;
  for (uint32_t high = 0; high < 0x10000; high += 5) {
    for (const uint32_t low : {0x0000u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  const auto n = static_cast<int64_t>(values.size());
  for (const auto& [name, kernels] : all_vector_kernels()) {
    std::vector<uint16_t> f16(values.size()), bf16(values.size());
    kernels->to_f16(values.data(), f16.data(), n);
    kernels->to_bf16(values.data(), bf16.data(), n);
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(f16_to_f32(f16[i]))) << name;
        ASSERT_TRUE(std::isnan(bf16_to_f32(bf16[i]))) << name;
      } else {
        ASSERT_EQ(f16[i], f32_to_f16(values[i])) << name << " " << values[i];
        ASSERT_EQ(bf16[i], f32_to_bf16(values[i])) << name << " " << values[i];
      }
    }
  }
}

}  // namespace
}  // namespace quire
