#include "attention/registry.h"

#include <gtest/gtest.h>

#include "attention/attention_case.h"
#include "base/error.h"

namespace quire {
namespace {

std::string refusal(const std::string& name, const AttentionGroup& group) {
  try {
    make_attention_backend(name, group);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_EQ(error.param(), "attention-backend");
    return error.what();
  }
  return "accepted";
}

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Registry, Names) {
  const AttentionGroup group = testing::make_group(4, 2, 64);
  for (const char* name : {"", "auto", "PHASED", "ROCM_AITER_FA"})
    EXPECT_EQ(make_attention_backend(name, group)->name(), "PHASED");
  EXPECT_EQ(make_attention_backend("CPU_ATTN", group)->name(), "CPU_ATTN");
}

TEST(Registry, RefusalsListEveryBackendWithItsReasons) {
  AttentionGroup group = testing::make_group(4, 2, 64);
  const std::string unknown = refusal("FLASHINFER", group);
  expect_in("FLASHINFER", unknown);
  expect_in("PHASED (alias ROCM_AITER_FA): fits", unknown);
  expect_in("CPU_ATTN: fits", unknown);
  group.block_size = 24;
  group.heads = 33;
  group.head_dim = 65;
  group.kv_dtype = DType::kI32;
  for (const char* name : {"PHASED", "CPU_ATTN", "auto", "FLASHINFER"}) {
    const std::string text = refusal(name, group);
    for (const char* reason :
         {"Block size must be a multiple of 16.", "head_size 65 not supported", "33 query heads can't share 2 KV heads",
          "kv_cache_dtype I32 not supported", "PHASED (alias ROCM_AITER_FA): [", "CPU_ATTN: ["}) {
      expect_in(reason, text);
    }
  }
}

TEST(Registry, ShapesThatFit) {
  for (const int32_t head_dim : {8, 40, 64, 128, 256, 512}) {
    for (const int32_t block_size : {16, 32, 48, 256}) {
      for (const KvLayout layout : {KvLayout::kPlain, KvLayout::kShuffle}) {
        EXPECT_NO_THROW(
            make_attention_backend("auto", testing::make_group(6, 2, head_dim, DType::kBF16, layout, block_size)));
      }
    }
  }
  for (const int32_t head_dim : {1, 4, 12, 520})
    expect_in("head_size", refusal("auto", testing::make_group(6, 2, head_dim, DType::kF16)));
}

}  // namespace
}  // namespace quire
