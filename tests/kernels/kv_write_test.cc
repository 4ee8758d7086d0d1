#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/kv_write/kv_write.h"
#include "kernels/rope/rope.h"
#include "kernels/test_values.h"

namespace quire {
namespace {

// The bytes of one element as the cache's type.
uint32_t bits_of(float value, DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return f32_to_f16(value);
    case DType::kBF16:
      return f32_to_bf16(value);
    case DType::kF8E4M3:
      return f32_to_f8e4m3(value);
    case DType::kF8E5M2:
      return f32_to_f8e5m2(value);
    case DType::kI8:
      return static_cast<uint8_t>(std::lrint(value));
    default:
      return std::bit_cast<uint32_t>(value);
  }
}

// Planes of one layer, filled with a pattern.
struct Planes {
  static constexpr std::byte kUntouched{0x5a};
  std::vector<std::byte> k, v;
  std::vector<float> k_scales, v_scales;

  Planes(PagedKv& kv)
      : k(static_cast<size_t>(k_plane_bytes(kv)), kUntouched),
        v(static_cast<size_t>(v_plane_bytes(kv)), kUntouched),
        k_scales(static_cast<size_t>(plane_scales(kv)), 0.5f),
        v_scales(k_scales.size(), 0.25f) {
    kv.k = k.data();
    kv.v = v.data();
    kv.k_scales = k_scales.data();
    kv.v_scales = v_scales.data();
  }
};

constexpr int64_t kRows = 21, kBlockSize = 16;

PagedKv small_cache(DType dtype, KvScaling scaling, KvLayout layout, int32_t head_dim) {
  PagedKv kv;
  kv.dtype = dtype;
  kv.scaling = scaling;
  kv.layout = layout;
  kv.block_size = kBlockSize;
  kv.kv_heads = 3;
  kv.head_dim = head_dim;
  kv.v_head_dim = layout == KvLayout::kPlain ? 40 : head_dim;
  kv.blocks = 5;
  return kv;
}

std::vector<int64_t> some_slots() {
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < kRows; ++i) slots.push_back(i % 4 == 3 ? -1 : i * 17 % 80);
  return slots;
}

// Rows of x, [3, head_dim], as the write op should leave them in `plane`, element by element.
void expect_rows(const PagedKv& kv, const ConstHeadRows& rows, bool is_k, const std::vector<int64_t>& slots,
                 std::vector<std::byte>& plane, std::vector<float>& scales) {
  const auto size = static_cast<size_t>(block_bytes(kv.dtype));
  const int64_t head_dim = is_k ? kv.head_dim : kv.v_head_dim;
  const float largest = kv.dtype == DType::kI8 ? 127.0f : kv.dtype == DType::kF8E4M3 ? 448.0f : 57344.0f;
  for (int64_t i = 0; i < kRows; ++i) {
    if (slots[static_cast<size_t>(i)] < 0) continue;
    const int64_t block = slots[static_cast<size_t>(i)] / kBlockSize, slot = slots[static_cast<size_t>(i)] % kBlockSize;
    for (int64_t head = 0; head < kv.kv_heads; ++head) {
      std::vector<float> x(static_cast<size_t>(head_dim));
      for (int64_t d = 0; d < head_dim; ++d) {
        dequantize(rows.dtype,
                   static_cast<const std::byte*>(rows.data) +
                       (i * rows.row_stride + head * rows.head_stride + d) * block_bytes(rows.dtype),
                   &x[static_cast<size_t>(d)], 1);
      }
      float inverse = 1.0f;
      if (kv.scaling != KvScaling::kNone) {
        float& scale = scales[static_cast<size_t>(scale_index(kv, block, slot, head))];
        if (kv.scaling == KvScaling::kTokenHead) {
          scale = std::abs(*std::max_element(x.begin(), x.end(),
                                             [](float a, float b) { return std::abs(a) < std::abs(b); })) /
                  largest;
        }
        inverse = 1.0f / scale;
      }
      const bool plain = kv.layout == KvLayout::kPlain;
      for (int64_t d = 0; d < head_dim; ++d) {
        const uint32_t bits = bits_of(x[static_cast<size_t>(d)] * inverse, kv.dtype);
        const int64_t at =
            is_k ? (plain ? PlainLayout::k(kv, block, slot, head, d) : ShuffleLayout::k(kv, block, slot, head, d))
                 : (plain ? PlainLayout::v(kv, block, slot, head, d) : ShuffleLayout::v(kv, block, slot, head, d));
        std::memcpy(plane.data() + static_cast<size_t>(at) * size, &bits, size);
      }
    }
  }
}

TEST(KvWrite, PutsEveryElementInItsPlaceAndNothingElse) {
  ThreadPool pool(3);
  const std::vector<int64_t> slots = some_slots();
  constexpr std::pair<DType, KvScaling> kTypes[] = {
      {DType::kF32, KvScaling::kNone},        {DType::kF16, KvScaling::kNone},    {DType::kBF16, KvScaling::kNone},
      {DType::kF8E4M3, KvScaling::kTensor},   {DType::kF8E5M2, KvScaling::kHead}, {DType::kI8, KvScaling::kTokenHead},
      {DType::kF8E4M3, KvScaling::kTokenHead}};
  for (const KvLayout layout : {KvLayout::kPlain, KvLayout::kShuffle}) {
    for (const auto& [dtype, scaling] : kTypes) {
      for (const int32_t head_dim : {8, 24, 64}) {
        for (const DType io : {DType::kF32, DType::kBF16}) {
          PagedKv kv = small_cache(dtype, scaling, layout, head_dim);
          Planes got(kv);
          Planes expected = got;
          const std::vector<float> values = random_floats(kRows * 400, 1);
          std::vector<uint16_t> narrow;
          for (const float x : values) narrow.push_back(f32_to_bf16(x));
          const void* data = io == DType::kF32 ? static_cast<const void*>(values.data()) : narrow.data();
          const ConstHeadRows k{data, 200, 66, io}, v{data, 390, 65, io};
          kv_write(k, v, slots.data(), kRows, kv, pool);
          expect_rows(kv, k, true, slots, expected.k, expected.k_scales);
          expect_rows(kv, v, false, slots, expected.v, expected.v_scales);
          // The padding of a K pack may hold anything.
          if (stored_head_dim(kv) == head_dim) {
            EXPECT_EQ(got.k, expected.k) << dtype_name(dtype) << ", head_dim " << head_dim;
          } else {
            for (int64_t block = 0; block < 5; ++block) {
              for (int64_t slot = 0; slot < kBlockSize; ++slot) {
                for (int64_t d = 0; d < head_dim; ++d) {
                  const auto at = static_cast<size_t>(ShuffleLayout::k(kv, block, slot, 2, d));
                  ASSERT_EQ(got.k[at], expected.k[at]) << dtype_name(dtype) << ", head_dim " << head_dim;
                }
              }
            }
          }
          EXPECT_EQ(got.v, expected.v) << dtype_name(dtype) << ", head_dim " << head_dim;
          EXPECT_EQ(got.k_scales, expected.k_scales);
          EXPECT_EQ(got.v_scales, expected.v_scales);
        }
      }
    }
  }
}

TEST(KvWrite, NanReachesTheScaleOfItsHead) {
  PagedKv kv = small_cache(DType::kI8, KvScaling::kTokenHead, KvLayout::kPlain, 8);
  Planes planes(kv);
  ThreadPool pool(1);
  std::vector<float> x(3 * 40, 1.0f);
  x[3] = NAN;
  const int64_t slot = 5;
  kv_write({x.data(), 0, 8}, {x.data(), 0, 40}, &slot, 1, kv, pool);
  EXPECT_TRUE(std::isnan(planes.k_scales[static_cast<size_t>(scale_index(kv, 0, 5, 0))]));
  EXPECT_FALSE(std::isnan(planes.k_scales[static_cast<size_t>(scale_index(kv, 0, 5, 1))]));
}

// The fused op does what rope and then kv_write do, and leaves k alone.
TEST(KvWrite, RopeFusedEqualsRopeThenWrite) {
  ThreadPool pool(3);
  const std::vector<int64_t> slots = some_slots();
  for (const bool interleaved : {false, true}) {
    for (const KvLayout layout : {KvLayout::kPlain, KvLayout::kShuffle}) {
      constexpr int64_t kHeads = 6, kHeadDim = 40, kHalf = kHeadDim / 2, kLd = (kHeads + 6) * kHeadDim;
      PagedKv kv = small_cache(DType::kF16, KvScaling::kNone, layout, kHeadDim);
      Planes fused(kv);
      PagedKv other = kv;
      Planes apart(other);
      std::vector<float> qkv = random_floats(kRows * kLd, 3), rotated = qkv;
      const std::vector<float> before = qkv;
      std::vector<int32_t> positions(kRows);
      for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i * 37);
      std::vector<float> inv_freq(kHalf), cos(kRows * kHalf), sin(kRows * kHalf);
      for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] = 1.0f / static_cast<float>(i + 1);
      rope_angles(inv_freq.data(), kHalf, positions.data(), kRows, 1.0, cos.data(), sin.data(), pool);
      const int64_t k_at = kHeads * kHeadDim, v_at = k_at + 3 * kHeadDim;
      rope_kv_write(qkv.data(), kLd, kHeads, qkv.data() + k_at, kLd, qkv.data() + v_at, kLd, slots.data(), kRows,
                    cos.data(), sin.data(), kHalf, interleaved, kv, pool);
      rope(rotated.data(), kLd, kHeads + 3, kRows, cos.data(), sin.data(), kHalf, interleaved, pool);
      kv_write({rotated.data() + k_at, kLd, kHeadDim}, {rotated.data() + v_at, kLd, kHeadDim}, slots.data(), kRows,
               other, pool);
      EXPECT_EQ(fused.k, apart.k);
      EXPECT_EQ(fused.v, apart.v);
      for (int64_t i = 0; i < kRows; ++i) {
        const auto row = qkv.begin() + i * kLd;
        EXPECT_TRUE(std::equal(row, row + k_at, rotated.begin() + i * kLd));
        EXPECT_TRUE(std::equal(row + k_at, row + kLd, before.begin() + i * kLd + k_at));
      }
    }
  }
}

TEST(KvWrite, CopiesAndResetsWholeBlocks) {
  for (const KvScaling scaling : {KvScaling::kTokenHead, KvScaling::kTensor}) {
    PagedKv kv = small_cache(DType::kI8, scaling, KvLayout::kShuffle, 24);
    Planes planes(kv);
    for (size_t i = 0; i < planes.k.size(); ++i) planes.k[i] = static_cast<std::byte>(i * 7 + i / 256);
    for (size_t i = 0; i < planes.v.size(); ++i) planes.v[i] = static_cast<std::byte>(i * 11 + i / 256);
    for (size_t i = 0; i < planes.k_scales.size(); ++i) planes.k_scales[i] = static_cast<float>(i + 1);
    const Planes before = planes;
    const std::vector<BlockCopy> copies = {{2, 0}, {0, 4}};  // in this order: 4 becomes what 2 was
    const std::vector<int32_t> cleared = {1};
    kv_copy_blocks(kv, copies);
    kv_reset_blocks(kv, cleared);
    constexpr int32_t kFrom[] = {2, -1, 2, 3, 2};
    const auto check = [&](const auto& now, const auto& then, int64_t block_size, auto zero) {
      for (int64_t block = 0; block < 5; ++block) {
        for (int64_t i = 0; i < block_size; ++i) {
          const auto value = now[static_cast<size_t>(block * block_size + i)];
          ASSERT_EQ(value, kFrom[block] < 0 ? zero : then[static_cast<size_t>(kFrom[block] * block_size + i)]) << block;
        }
      }
    };
    check(planes.k, before.k, k_block_bytes(kv), std::byte{0});
    check(planes.v, before.v, v_block_bytes(kv), std::byte{0});
    if (scaling == KvScaling::kTokenHead) {
      check(planes.k_scales, before.k_scales, block_scales(kv), 0.0f);
    } else {
      EXPECT_EQ(planes.k_scales, before.k_scales);  // a layer's scale belongs to no block
    }
  }
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
