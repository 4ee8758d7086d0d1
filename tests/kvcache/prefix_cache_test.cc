// The prefix cache at its edges: whole prompts that are found (vllm#9972), chains of one bucket, equal hashes of other
// tokens; and slots at the ends of a block table (vllm#54296).
#include "kvcache/prefix_cache.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "kvcache/block_pool.h"

namespace quire {
namespace {

constexpr int32_t kBlockSize = 16;

std::vector<int32_t> prompt_of(int length) {
  std::vector<int32_t> tokens(static_cast<size_t>(length));
  std::iota(tokens.begin(), tokens.end(), 100);
  return tokens;
}

std::span<const int32_t> block_of(const std::vector<int32_t>& tokens, int block) {
  return std::span(tokens).subspan(static_cast<size_t>(block * kBlockSize), kBlockSize);
}

// Blocks of a prompt, looked up one after the other as a request does.
std::vector<int32_t> find_all(const BlockPool& pool, const std::vector<int32_t>& tokens) {
  std::vector<int32_t> found;
  BlockHash hash = pool.root("");
  for (int i = 0; (i + 1) * kBlockSize <= static_cast<int>(tokens.size()); ++i) {
    hash = pool.extend(hash, block_of(tokens, i));
    const auto block = pool.find(hash, block_of(tokens, i));
    if (!block) break;
    found.push_back(*block);
  }
  return found;
}

TEST(PrefixCache, ALongerPromptFindsAllFullBlocksOfAShorterOne) {
  for (const int length : {15, 16, 17, 31, 32, 33, 48}) {
    BlockPool pool({8, kBlockSize, true, 3});
    const auto tokens = prompt_of(length);
    std::vector<int32_t> blocks;
    BlockHash hash = pool.root("");
    for (int i = 0; i < length / kBlockSize; ++i) {
      hash = pool.extend(hash, block_of(tokens, i));
      blocks.push_back(*pool.allocate());
      pool.publish(blocks.back(), hash, block_of(tokens, i));
    }
    EXPECT_EQ(find_all(pool, tokens), blocks) << length;
    EXPECT_EQ(find_all(pool, prompt_of(length + 40)), blocks) << length;
    for (const int32_t block : blocks) pool.release(block);
    EXPECT_EQ(find_all(pool, tokens), blocks) << length << ": free blocks are still found";
    // The last block is recomputed into one of its own; the chain stays as it is.
    if (blocks.empty()) continue;
    for (size_t i = 0; i + 1 < blocks.size(); ++i) pool.retain(blocks[i]);
    const int32_t fresh = *pool.allocate();
    pool.publish(fresh, hash, block_of(tokens, length / kBlockSize - 1));
    EXPECT_EQ(find_all(pool, tokens), blocks) << length;
  }
}

TEST(PrefixCache, AMiddleBlockThatIsGoneEndsTheChain) {
  BlockPool pool({3, kBlockSize, true, 3});
  const auto tokens = prompt_of(48);
  std::vector<int32_t> blocks;
  BlockHash hash = pool.root("");
  for (int i = 0; i < 3; ++i) {
    hash = pool.extend(hash, block_of(tokens, i));
    blocks.push_back(*pool.allocate());
    pool.publish(blocks.back(), hash, block_of(tokens, i));
  }
  pool.release(blocks[1]);
  EXPECT_EQ(pool.allocate(), blocks[1]);
  EXPECT_EQ(find_all(pool, tokens), std::vector<int32_t>{blocks[0]});
}

// Hashes that differ only above the bits that choose a bucket share one.
TEST(PrefixCache, ABucketOfManyKeepsAllButTheErased) {
  constexpr int32_t kBlocks = 6;
  PrefixCache cache(kBlocks, 1, 0);
  const auto hash_of = [](int32_t block) { return BlockHash{uint64_t{5} + (uint64_t(block) << 40), 1}; };
  for (const int32_t erased : {0, 3, 5}) {  // the end, the middle and the head of the chain
    for (int32_t block = 0; block < kBlocks; ++block) cache.insert(block, hash_of(block), {{block}});
    cache.erase(erased);
    cache.erase(erased);
    for (int32_t block = 0; block < kBlocks; ++block) {
      EXPECT_EQ(cache.holds(block), block != erased);
      EXPECT_EQ(cache.find(hash_of(block), {{block}}), block == erased ? std::nullopt : std::optional<int32_t>(block))
          << block << " with " << erased << " erased";
    }
    cache.clear();
    for (int32_t block = 0; block < kBlocks; ++block) EXPECT_EQ(cache.find(hash_of(block), {{block}}), std::nullopt);
  }
}

TEST(PrefixCache, EqualHashesOfOtherTokensAreNotBelieved) {
  PrefixCache cache(2, 2, 0);
  const BlockHash hash{7, 7};
  const std::vector<int32_t> tokens = {1, 2}, others = {1, 3};
  cache.insert(0, hash, tokens);
  cache.insert(1, hash, others);  // stays out: one block a hash
  EXPECT_EQ(cache.find(hash, tokens), 0);
  EXPECT_EQ(cache.find(hash, others), std::nullopt);
  EXPECT_FALSE(cache.holds(1));
}

TEST(SlotOf, EndsOfATable) {
  const std::vector<int32_t> table = {3, -1, std::numeric_limits<int32_t>::max()};
  const auto slot = [&](int64_t position, int32_t block_size) { return slot_of(table, position, block_size); };
  EXPECT_EQ(slot(0, 16), 48);
  EXPECT_EQ(slot(15, 16), 63);
  EXPECT_EQ(slot(16, 16), -1) << "no block yet";
  EXPECT_EQ(slot(32, 16), int64_t{std::numeric_limits<int32_t>::max()} * 16) << "more than 32 bits";
  EXPECT_EQ(slot(47, 16), int64_t{std::numeric_limits<int32_t>::max()} * 16 + 15);
  EXPECT_EQ(slot(48, 16), -1) << "past the row";
  EXPECT_EQ(slot(std::numeric_limits<int64_t>::max(), 16), -1);
  EXPECT_EQ(slot(-1, 16), -1);
  EXPECT_EQ(slot_of({}, 0, 16), -1);
  EXPECT_EQ(slot(2, 1), std::numeric_limits<int32_t>::max());
}

}  // namespace
}  // namespace quire
