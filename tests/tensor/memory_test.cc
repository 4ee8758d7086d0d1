#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <stdexcept>

#include "tensor/paged_kv.h"
#include "tensor/workspace.h"

namespace quire {
namespace {

TEST(Workspace, AlignedAndReusable) {
  Workspace workspace(4096);
  auto* a = workspace.take<char>(1);
  const size_t mark = workspace.mark();
  auto* b = workspace.take<double>(3);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % Workspace::kAlignment, 0U);
  EXPECT_EQ(reinterpret_cast<char*>(b) - a, int64_t{Workspace::kAlignment});
  workspace.release(mark);
  EXPECT_EQ(static_cast<void*>(workspace.take<char>(64)), static_cast<void*>(b));
}

TEST(Workspace, RefusesMoreThanItHas) {
  Workspace workspace(256);
  EXPECT_THROW(workspace.take<char>(257), std::logic_error);
  auto* all = workspace.take<char>(256);
  std::memset(all, 1, 256);
  EXPECT_THROW(workspace.take<char>(1), std::logic_error);
  EXPECT_EQ(workspace.capacity(), 256U);
  Workspace empty(0);
  EXPECT_THROW(empty.take<char>(1), std::logic_error);
}

// A layout gives every element of a plane an offset of its own inside the plane.
template <class Layout>
void expect_bijection(const PagedKv& kv) {
  std::set<int64_t> k, v;
  for (int64_t block = 0; block < kv.blocks; ++block) {
    for (int64_t slot = 0; slot < kv.block_size; ++slot) {
      for (int64_t head = 0; head < kv.kv_heads; ++head) {
        for (int64_t dim = 0; dim < kv.head_dim; ++dim) {
          k.insert(Layout::k(kv, block, slot, head, dim));
          v.insert(Layout::v(kv, block, slot, head, dim));
        }
      }
    }
  }
  const int64_t elements = k_plane_bytes(kv) / block_bytes(kv.dtype);
  for (const auto& offsets : {k, v}) {
    EXPECT_EQ(static_cast<int64_t>(offsets.size()), elements);
    EXPECT_EQ(*offsets.begin(), 0);
    EXPECT_EQ(*offsets.rbegin(), elements - 1);
  }
}

TEST(PagedKv, LayoutsCoverThePlane) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kI8}) {
    PagedKv kv;
    kv.dtype = dtype;
    kv.block_size = 16;
    kv.kv_heads = 3;
    kv.head_dim = kv.v_head_dim = 32;
    kv.blocks = 2;
    expect_bijection<PlainLayout>(kv);
    expect_bijection<ShuffleLayout>(kv);
  }
}

TEST(PagedKv, OffsetsAreSixtyFourBit) {
  PagedKv kv;
  kv.dtype = DType::kF16;
  kv.block_size = 16;
  kv.kv_heads = 8;
  kv.head_dim = kv.v_head_dim = 128;
  kv.blocks = int64_t{1} << 20;
  const int64_t last = kv.blocks - 1;
  EXPECT_EQ(PlainLayout::k(kv, last, 15, 7, 127), kv.blocks * 16 * 8 * 128 - 1);
  EXPECT_EQ(ShuffleLayout::v(kv, last, 15, 7, 127), kv.blocks * 16 * 8 * 128 - 1);
}

TEST(PagedKv, ShuffleAddressesByHand) {
  PagedKv kv;
  kv.dtype = DType::kF16;  // packs of 8
  kv.block_size = 16;
  kv.kv_heads = 2;
  kv.head_dim = kv.v_head_dim = 64;
  kv.blocks = 4;
  // K [4, 2, 8, 16, 8]: block 1, head 1, dim 19 = pack 2 element 3, slot 5.
  EXPECT_EQ(ShuffleLayout::k(kv, 1, 5, 1, 19), (((1 * 2 + 1) * 8 + 2) * 16 + 5) * 8 + 3);
  // V [4, 2, 2, 64, 8]: slot 13 = pack 1 element 5.
  EXPECT_EQ(ShuffleLayout::v(kv, 1, 13, 1, 19), (((1 * 2 + 1) * 2 + 1) * 64 + 19) * 8 + 5);
}

}  // namespace
}  // namespace quire
