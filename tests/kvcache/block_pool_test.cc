#include "kvcache/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

namespace quire {
namespace {

std::vector<int32_t> tokens_of(int seed) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 16; ++i) tokens.push_back(seed * 100 + i);
  return tokens;
}

TEST(BlockPool, HandsOutEveryBlockOnce) {
  BlockPool pool({4, 16, true, 1});
  std::vector<int32_t> seen;
  while (const auto block = pool.allocate()) seen.push_back(*block);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(pool.free_blocks(), 0);
  pool.retain(2);
  pool.release(2);
  EXPECT_EQ(pool.free_blocks(), 0);
  pool.release(2);
  EXPECT_EQ(pool.free_blocks(), 1);
  EXPECT_EQ(pool.allocate(), 2);
}

TEST(BlockPool, FindsWhatWasPublishedUntilItIsReused) {
  BlockPool pool({3, 16, true, 1});
  const BlockHash root = pool.root("");
  const auto a = tokens_of(1), b = tokens_of(2);
  const BlockHash hash_a = pool.extend(root, a), hash_b = pool.extend(hash_a, b);
  const int32_t first = *pool.allocate(), second = *pool.allocate();
  pool.publish(first, hash_a, a);
  pool.publish(second, hash_b, b);
  pool.release(second);
  pool.release(first);
  EXPECT_EQ(pool.find(hash_a, a), first);
  EXPECT_EQ(pool.find(hash_b, b), second);
  EXPECT_EQ(pool.find(hash_a, b), std::nullopt) << "the hash alone is not believed";
  pool.allocate();  // the never used block goes first
  EXPECT_EQ(pool.find(hash_b, b), second);
  EXPECT_EQ(pool.allocate(), second) << "then the least recently used";
  EXPECT_EQ(pool.find(hash_b, b), std::nullopt);
  EXPECT_EQ(pool.find(hash_a, a), first);
  pool.reset_prefix_cache();
  EXPECT_EQ(pool.find(hash_a, a), std::nullopt);
}

TEST(BlockPool, HashesDependOnKeySaltParentAndTokens) {
  const BlockPool pool({1, 16, true, 1}), other_key({1, 16, true, 2});
  const auto a = tokens_of(1), b = tokens_of(2);
  const BlockHash root = pool.root("");
  EXPECT_EQ(pool.extend(root, a), pool.extend(pool.root(""), a));
  EXPECT_NE(pool.extend(root, a), pool.extend(root, b));
  EXPECT_NE(pool.extend(root, a), pool.extend(pool.extend(root, b), a));
  EXPECT_NE(pool.root(""), pool.root("tenant"));
  EXPECT_NE(pool.extend(root, a), other_key.extend(other_key.root(""), a));
}

TEST(BlockPool, WithoutPrefixCachingNothingIsFound) {
  BlockPool pool({2, 16, false, 1});
  const auto a = tokens_of(1);
  const BlockHash hash = pool.extend(pool.root(""), a);
  const int32_t block = *pool.allocate();
  pool.publish(block, hash, a);
  EXPECT_EQ(pool.find(hash, a), std::nullopt);
  pool.release(block);
  EXPECT_EQ(pool.allocate(), block) << "an uncached block is taken again first";
  pool.reset_prefix_cache();
}

TEST(BlockPool, ASecondBlockOfEqualContentStaysUncached) {
  BlockPool pool({2, 16, true, 1});
  const auto a = tokens_of(1);
  const BlockHash hash = pool.extend(pool.root(""), a);
  const int32_t first = *pool.allocate(), second = *pool.allocate();
  pool.publish(first, hash, a);
  pool.publish(second, hash, a);
  EXPECT_EQ(pool.find(hash, a), first);
  pool.release(second);
  EXPECT_EQ(pool.allocate(), second);
  EXPECT_EQ(pool.find(hash, a), first) << "giving the copy away must not drop the first";
}

// What a pool should do, with lists and maps: which block is handed out, and what is found.
struct NaivePool {
  struct Content {
    BlockHash hash;
    std::vector<int32_t> tokens;
  };
  std::deque<int32_t> free;
  std::map<int32_t, int> references;
  std::map<int32_t, Content> cached;

  std::optional<int32_t> find(const BlockHash& hash, const std::vector<int32_t>& tokens) const {
    for (const auto& [block, content] : cached) {
      if (content.hash == hash && content.tokens == tokens) return block;
    }
    return std::nullopt;
  }
};

TEST(BlockPool, HandsOutAndFindsWhatANaivePoolDoes) {
  std::mt19937 random(4);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  constexpr int32_t kBlocks = 12;
  BlockPool pool({kBlocks, 16, true, 9});
  NaivePool naive;
  for (int32_t i = 0; i < kBlocks; ++i) naive.free.push_back(i);
  for (int step = 0; step < 50000; ++step) {
    const auto tokens = tokens_of(pick(0, 25));
    const BlockHash hash = pool.extend(pool.root(""), tokens);
    ASSERT_EQ(pool.find(hash, tokens), naive.find(hash, tokens)) << step;
    const int what = pick(0, 99);
    if (what < 35) {
      const auto block = pool.allocate();
      ASSERT_EQ(block.has_value(), !naive.free.empty());
      if (!block) continue;
      ASSERT_EQ(*block, naive.free.front()) << step;
      naive.free.pop_front();
      naive.cached.erase(*block);
      naive.references[*block] = 1;
      if (pick(0, 2) > 0) {
        pool.publish(*block, hash, tokens);
        if (!naive.find(hash, tokens)) naive.cached[*block] = {hash, tokens};
      }
    } else if (what < 60) {
      if (const auto block = pool.find(hash, tokens)) {
        pool.retain(*block);
        if (naive.references[*block]++ == 0) naive.free.erase(std::find(naive.free.begin(), naive.free.end(), *block));
      }
    } else if (what < 99) {
      std::vector<int32_t> used;
      for (const auto& [block, count] : naive.references) {
        if (count > 0) used.push_back(block);
      }
      if (used.empty()) continue;
      const int32_t block = used[static_cast<size_t>(pick(0, static_cast<int>(used.size()) - 1))];
      pool.release(block);
      if (--naive.references[block] > 0) continue;
      if (naive.cached.contains(block)) {
        naive.free.push_back(block);
      } else {
        naive.free.push_front(block);
      }
    } else if (pick(0, 9) == 0) {
      pool.reset_prefix_cache();
      naive.cached.clear();
    }
    ASSERT_EQ(pool.free_blocks(), static_cast<int32_t>(naive.free.size()));
  }
}

TEST(SlotOf, Cases) {
  std::ifstream file(QUIRE_TEST_DATA "/kvcache/slot_mapping_cases.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_FALSE(cases.empty());
  for (const auto& c : cases) {
    const auto tables = c["block_table"].get<std::vector<std::vector<int32_t>>>();
    for (size_t i = 0; i < c["pos"].size(); ++i) {
      const int request = c["req"][i];
      const int64_t slot =
          request < 0 ? -1 : slot_of(tables[static_cast<size_t>(request)], c["pos"][i], c["block_size"]);
      EXPECT_EQ(slot, c["slots"][i].get<int64_t>()) << c["id"] << " " << i;
    }
  }
}

}  // namespace
}  // namespace quire
