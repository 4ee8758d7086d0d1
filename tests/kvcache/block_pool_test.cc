#include "kvcache/block_pool.h"

#include <gtest/gtest.h>

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

TEST(BlockPool, AgreesWithANaivePool) {
  std::mt19937 random(3);
  BlockPool pool({8, 16, true, 1});
  std::map<int32_t, int> references;
  for (int step = 0; step < 20000; ++step) {
    const int what = std::uniform_int_distribution<int>(0, 2)(random);
    if (what == 0) {
      const auto block = pool.allocate();
      ASSERT_EQ(block.has_value(), references.size() < 8);
      if (block) {
        ASSERT_FALSE(references.contains(*block));
        references[*block] = 1;
        const auto tokens = tokens_of(std::uniform_int_distribution<int>(0, 20)(random));
        pool.publish(*block, pool.extend(pool.root(""), tokens), tokens);
      }
    } else if (what == 1) {
      const auto tokens = tokens_of(std::uniform_int_distribution<int>(0, 20)(random));
      if (const auto block = pool.find(pool.extend(pool.root(""), tokens), tokens)) {
        pool.retain(*block);
        ++references[*block];
      }
    } else if (!references.empty()) {
      auto it = references.begin();
      std::advance(it, std::uniform_int_distribution<size_t>(0, references.size() - 1)(random));
      pool.release(it->first);
      if (--it->second == 0) references.erase(it);
    }
    ASSERT_EQ(pool.free_blocks(), 8 - static_cast<int32_t>(references.size()));
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
