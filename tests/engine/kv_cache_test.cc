// How many blocks the KV cache gets, and what is said where they can't be had.
#include "engine/kv_cache.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace quire {
namespace {

constexpr int64_t kLayers = 2, kBlockBytes = 2 * kLayers * 16 * 4 * 64 * 4;  // K and V, f32

class KvBlocksTest : public testing::Test {
 protected:
  KvBlocksTest() {
    group_.heads = group_.kv_heads = 4;
    group_.head_dim = group_.v_head_dim = 64;
    config_.max_num_seqs = 8;
    config_.max_model_len = 100;  // 7 blocks
  }
  int64_t planned(int64_t available_blocks) const {
    return plan_kv_blocks(config_, group_, kLayers,
                          {available_blocks * kBlockBytes / 4, available_blocks * kBlockBytes});
  }
  std::string refusal(int64_t available_blocks) const {
    try {
      planned(available_blocks);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kResourceExhausted);
      return error.what();
    }
    return "";
  }
  EngineConfig config_;
  AttentionGroup group_;
};

TEST_F(KvBlocksTest, ByDefaultAQuarterOfTheMemoryAndNoMoreThanIsOfUse) {
  EXPECT_EQ(kv_block_bytes(group_, kLayers), kBlockBytes);
  EXPECT_EQ(planned(40), 10);
  EXPECT_EQ(planned(1000), 8 * 7);
}

TEST_F(KvBlocksTest, AsManyAsAskedFor) {
  config_.kv_cache_memory_bytes = 20 * kBlockBytes + 1;
  EXPECT_EQ(planned(20), 20);
  config_.num_gpu_blocks_override = 30;
  EXPECT_EQ(planned(1000), 30);
}

TEST_F(KvBlocksTest, RefusesWhatDoesNotFitAndNamesTheFlagAndTheSizes) {
  EXPECT_NE(refusal(27).find("--max-model-len 100 needs " + std::to_string(7 * kBlockBytes)), std::string::npos);
  config_.kv_cache_memory_bytes = 20 * kBlockBytes;
  EXPECT_NE(refusal(19).find("--kv-cache-memory-bytes " + std::to_string(20 * kBlockBytes)), std::string::npos);
  config_.num_gpu_blocks_override = 30;
  EXPECT_NE(refusal(29).find("--num-gpu-blocks-override 30"), std::string::npos);
  EXPECT_NE(refusal(29).find(std::to_string(29 * kBlockBytes)), std::string::npos);
}

}  // namespace
}  // namespace quire
