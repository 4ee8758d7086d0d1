// Lengths at every edge: one token less, as many, and one more than a block, a partition, a tile of query rows, what
// decodes are cut at, and what one round of a gather takes. Slots past a request's length hold NaN.
#include <gtest/gtest.h>

#include <utility>

#include "attention/attention_case.h"
#include "attention/phased.h"

namespace quire {
namespace {

using testing::Lengths;
using testing::make_group;
using testing::make_requests;
using testing::RequestData;
using testing::same_bits;
using testing::Shape;
using testing::Step;

std::string name_of(const Lengths& lengths) {
  return std::to_string(lengths.context) + " tokens of context and " + std::to_string(lengths.query) + " new";
}

// Each request is right, whatever the backend and its neighbours.
class Edges : public ::testing::Test {
 protected:
  void check(const Shape& shape, const std::vector<Lengths>& lengths, int32_t decode_threshold = 1) {
    const std::vector<RequestData> requests = make_requests(shape, lengths, seed_);
    const Step step(shape, requests, ++seed_, decode_threshold);
    const auto phased = step.run(*phased_, pool_), joined = step.run(*joined_, pool_),
               gather = step.run(*gather_, pool_);
    EXPECT_LE(step.error(phased), 1.0) << name_of(lengths[0]) << ", and " << lengths.size() - 1 << " requests more";
    EXPECT_FALSE(step.touched_outside());
    for (size_t r = 0; r < requests.size(); ++r) {
      EXPECT_TRUE(same_bits(phased[r], joined[r])) << name_of(lengths[r]) << ": phases joined";
      EXPECT_TRUE(same_bits(phased[r], gather[r])) << name_of(lengths[r]) << ": context gathered";
      if (requests.size() == 1) continue;
      const auto alone = Step(shape, {requests[r]}, seed_, decode_threshold).run(*phased_, pool_);
      EXPECT_TRUE(same_bits(phased[r], alone[0])) << name_of(lengths[r]) << ": alone";
    }
  }

  std::unique_ptr<AttentionBackend> phased_ = make_phased_backend(), joined_ = make_joined_backend(),
                                    gather_ = make_phased_backend(ExtendStrategy::kGather);
  ThreadPool pool_{2};
  uint32_t seed_ = 1;
};

std::vector<int32_t> around(std::initializer_list<int32_t> edges) {
  std::vector<int32_t> values;
  for (const int32_t edge : edges) {
    for (const int32_t value : {edge - 1, edge, edge + 1}) {
      if (value >= 0 && std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    }
  }
  return values;
}

// Every context with every number of new tokens; the total length meets the edges too.
TEST_F(Edges, BlocksPartitionsAndTiles) {
  constexpr std::pair<KvLayout, int32_t> kCaches[] = {
      {KvLayout::kPlain, 48}, {KvLayout::kShuffle, 16}, {KvLayout::kShuffle, 32}};
  for (const auto& [layout, block_size] : kCaches) {
    const AttentionGroup group = make_group(2, 1, 8, DType::kF16, layout, block_size);
    const int32_t tile = attention_tile_rows(group.heads, kv_of(group, 0));
    for (const int32_t context : around({0, block_size, kPartitionKeys, 2 * kPartitionKeys})) {
      std::vector<Lengths> lengths;
      for (const int32_t query : around({1, tile, 2 * tile, block_size, kPartitionKeys})) {
        if (query > 0) lengths.push_back({context, query});
      }
      // The last token of the step ends a block, or a partition, or is the first of the next.
      for (const int32_t total : around({block_size, 4 * block_size, kPartitionKeys, 3 * kPartitionKeys})) {
        if (total > context) lengths.push_back({context, total - context});
      }
      check(group, lengths);
    }
  }
}

TEST_F(Edges, Windows) {
  for (const int32_t window : around({1, 16, kPartitionKeys, 2 * kPartitionKeys})) {
    if (window == 0) continue;  // none
    AttentionGroup group = make_group(2, 1, 16, DType::kF32, window % 2 == 0 ? KvLayout::kShuffle : KvLayout::kPlain);
    group.window = window;
    std::vector<Lengths> lengths;
    for (const int32_t context : around({0, window, window + kPartitionKeys, 2 * kPartitionKeys})) {
      lengths.push_back({context, 1});
      lengths.push_back({context, 2});
      lengths.push_back({context, 25});  // a tile and one row
      if (context > 0) lengths.push_back({context, context});
    }
    check(group, lengths);
  }
}

// Alone, a decode is cut along its keys from the third partition on.
TEST_F(Edges, LoneDecodes) {
  for (const int32_t context : around({1, 16, kPartitionKeys, 2 * kPartitionKeys, 3 * kPartitionKeys, 1024})) {
    if (context == 0) continue;
    for (const int32_t window : {0, 1, kPartitionKeys, kPartitionKeys + 1, kPartitionKeys + 2, 300}) {
      AttentionGroup group = make_group(3, 1, 24, DType::kBF16, KvLayout::kShuffle);
      group.window = window;
      check(group, {{context, 1}});
    }
  }
}

TEST_F(Edges, TheDecodeThreshold) {
  const AttentionGroup group = make_group(4, 2, 16);
  const int32_t tile = attention_tile_rows(group.heads, kv_of(group, 0));
  for (const int32_t threshold : {1, 2, 3, tile, tile + 1}) {
    std::vector<Lengths> lengths;
    for (const int32_t query : around({1, threshold})) {
      if (query == 0) continue;
      for (const int32_t context : {0, 1, 15, 16, kPartitionKeys - 1, kPartitionKeys})
        lengths.push_back({context, query});
    }
    check(group, lengths, threshold);
  }
}

// A task's scratch holds so many KV heads of a decode; the others are another task's.
TEST_F(Edges, GroupsOfHeads) {
  constexpr int32_t kQuery = kPageStates, kHeadDim = 8;
  const int32_t most = attention_tile_rows(1, kv_of(make_group(1, 1, kHeadDim), 0)) / kQuery;
  for (const int32_t heads : around({most, 2 * most})) {
    check(make_group(heads, heads, kHeadDim), {{20, kQuery}, {kPartitionKeys, 1}, {3, 2}}, kQuery);
  }
}

// The context of all requests together against what one round gathers.
TEST_F(Edges, RoundsOfAGather) {
  const AttentionGroup group = make_group(1, 1, 8);
  for (const int32_t context : around({kGatherTokens, kGatherTokens + kPartitionKeys})) check(group, {{context, 2}});
  constexpr int32_t kHalf = kGatherTokens / 2;
  for (const int32_t second : {kHalf - kPartitionKeys, kHalf - 1, kHalf, kHalf + 1, kHalf + kPartitionKeys})
    check(group, {{kHalf, 2}, {second, 3}, {kPartitionKeys, 2}});
}

}  // namespace
}  // namespace quire
