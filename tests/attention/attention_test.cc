#include <gtest/gtest.h>

#include "attention/attention_case.h"
#include "attention/phased.h"
#include "attention/random_features.h"
#include "share.h"

namespace quire {
namespace {

using testing::add_random_features;
using testing::chance;
using testing::Lengths;
using testing::make_group;
using testing::make_requests;
using testing::pick;
using testing::random_floats;
using testing::RandomCase;
using testing::RequestData;
using testing::same_bits;
using testing::Shape;
using testing::Step;

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr KvLayout kLayouts[] = {KvLayout::kPlain, KvLayout::kShuffle};

std::vector<Lengths> random_lengths(std::mt19937& random) {
  const auto upto = [&](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint32_t>(n + 1)); };
  std::vector<Lengths> lengths;
  for (int32_t i = upto(3); i > 0; --i) lengths.push_back({1 + upto(300), 1});
  for (int32_t i = upto(2); i > 0; --i) lengths.push_back({1 + upto(200), 2 + upto(30)});
  for (int32_t i = upto(2); i > 0; --i) lengths.push_back({0, 1 + upto(40)});
  if (lengths.empty()) lengths.push_back({upto(20), 1});
  std::shuffle(lengths.begin(), lengths.end(), random);
  return lengths;
}

RandomCase random_case(uint32_t seed) {
  std::mt19937 random(seed);
  constexpr int32_t kHeads[][2] = {{1, 1}, {2, 1}, {3, 1}, {4, 1},  {5, 1}, {6, 2},
                                   {7, 1}, {8, 1}, {9, 3}, {14, 2}, {2, 2}, {12, 1}};
  constexpr int32_t kHeadDims[] = {8, 16, 24, 40, 64, 64, 72, 80, 96, 112, 128, 192, 256};
  constexpr int32_t kWindows[] = {1, 2, 15, 16, 20, 100, 127, 128, 129, 250, 1000};
  constexpr DType kTypes[] = {DType::kF32,    DType::kF32,    DType::kF16, DType::kBF16,
                              DType::kF8E4M3, DType::kF8E5M2, DType::kI8};
  const auto& heads = kHeads[random() % std::size(kHeads)];
  Shape shape(make_group(heads[0], heads[1], pick(random, kHeadDims), pick(random, kTypes),
                         chance(random, 50) ? KvLayout::kShuffle : KvLayout::kPlain,
                         16 * (1 + static_cast<int32_t>(random() % 3))));
  AttentionGroup& group = shape.group;
  if (group.layout == KvLayout::kPlain && chance(random, 25)) group.v_head_dim = pick(random, kHeadDims);
  add_random_features(random, kWindows, shape);
  if (group.kv_dtype == DType::kI8) {
    group.kv_scaling = KvScaling::kTokenHead;
  } else if (group.kv_dtype == DType::kF8E4M3 || group.kv_dtype == DType::kF8E5M2) {
    group.kv_scaling = chance(random, 50) ? KvScaling::kTensor : KvScaling::kHead;
    const size_t scales = group.kv_scaling == KvScaling::kTensor ? 1 : static_cast<size_t>(group.kv_heads);
    shape.k_scales = random_floats(random, scales, 0.01f, 2.0f);
    shape.v_scales = random_floats(random, scales, 0.01f, 2.0f);
  }
  if (chance(random, 40)) shape.io = chance(random, 50) ? DType::kF16 : DType::kBF16;
  RandomCase result{shape, make_requests(shape, random_lengths(random), random()), chance(random, 30) ? 4 : 1};
  return result;
}

std::string describe(const RandomCase& c) {
  const AttentionGroup& g = c.shape.group;
  std::string text = "heads " + std::to_string(g.heads) + "/" + std::to_string(g.kv_heads) + ", head sizes " +
                     std::to_string(g.head_dim) + "/" + std::to_string(g.v_head_dim) + ", KV " +
                     std::string(dtype_name(g.kv_dtype)) + (g.layout == KvLayout::kShuffle ? " shuffle" : " plain") +
                     ", block " + std::to_string(g.block_size) + ", window " + std::to_string(g.window) + ", cap " +
                     std::to_string(g.soft_cap) + (c.shape.slopes.empty() ? "" : ", slopes") +
                     (c.shape.sinks.empty() ? "" : ", sinks") + ", io " + std::string(dtype_name(c.shape.io)) +
                     ", requests";
  for (const RequestData& r : c.requests)
    text += " " + std::to_string(r.lengths.context) + "+" + std::to_string(r.lengths.query);
  return text;
}

// Cases [first, end): each agrees with the reference in double, and its bits depend on the requests only, whatever the
// strategy, the phases told apart, the layout, the place in the cache, the batch and the number of workers.
void check_cases(uint32_t first, uint32_t end) {
  const auto phased = make_phased_backend(), joined = make_joined_backend(),
             gather = make_phased_backend(ExtendStrategy::kGather);
  ThreadPool one(1), three(3);
  double worst = 0.0;
  for (uint32_t i = first; i < end; i += static_cast<uint32_t>(testing::case_stride())) {
    const RandomCase c = random_case(i);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + describe(c));
    const Step step(c.shape, c.requests, i, c.decode_threshold);
    const auto expected = step.run(*phased, three);
    const double error = step.error(expected);
    ASSERT_LE(error, 1.0);
    worst = std::max(worst, error);
    const auto check = [&](const std::vector<std::vector<float>>& got, const char* what) {
      for (size_t r = 0; r < expected.size(); ++r)
        ASSERT_TRUE(same_bits(expected[r], got[r])) << what << ", request " << r;
    };
    check(step.run(*joined, one), "phases joined");
    check(step.run(*gather, three), "context gathered");
    ASSERT_FALSE(step.touched_outside());
    Shape other = c.shape;
    other.group.layout = c.shape.group.layout == KvLayout::kPlain ? KvLayout::kShuffle : KvLayout::kPlain;
    if (other.group.head_dim == other.group.v_head_dim)
      check(Step(other, c.requests, i + 7, c.decode_threshold).run(*phased, three), "the other layout, other blocks");
    if (c.requests.size() == 1) continue;
    std::vector<std::vector<float>> alone;
    for (const RequestData& request : c.requests)
      alone.push_back(Step(c.shape, {request}, i + 3, c.decode_threshold).run(*phased, one)[0]);
    check(alone, "alone");
  }
  ::testing::Test::RecordProperty("worst_share_of_tolerance", std::to_string(worst));
}

// In parts, so that a failure shows soon and a run may take some of them.
TEST(Attention, RandomMixedBatches0) { check_cases(0, 500); }
TEST(Attention, RandomMixedBatches1) { check_cases(500, 1000); }
TEST(Attention, RandomMixedBatches2) { check_cases(1000, 1500); }
TEST(Attention, RandomMixedBatches3) { check_cases(1500, 2000); }

// A position's output is the same whether its token came in a prefill, in any chunk of one, or as a decode.
TEST(Attention, ChunkingDoesNotChangeBits) {
  const auto backend = make_phased_backend();
  ThreadPool pool(2);
  for (const DType dtype : kDTypes) {
    const AttentionGroup group = make_group(9, 3, 64, dtype);
    constexpr int32_t kTokens = 300;
    const RequestData whole(group, {0, kTokens}, 5);
    const std::vector<float> expected = Step(group, {whole}, 1).run(*backend, pool)[0];
    const size_t row = static_cast<size_t>(group.heads * group.head_dim),
                 kv_row = static_cast<size_t>(group.kv_heads * group.head_dim);
    const auto part = [&](int32_t begin, int32_t end) {
      RequestData request = whole;
      request.lengths = {begin, end - begin};
      request.k.resize(static_cast<size_t>(end) * kv_row);
      request.v.resize(static_cast<size_t>(end) * kv_row);
      request.q.assign(whole.q.begin() + static_cast<int64_t>(static_cast<size_t>(begin) * row),
                       whole.q.begin() + static_cast<int64_t>(static_cast<size_t>(end) * row));
      const std::vector<float> got = Step(group, {request}, static_cast<uint32_t>(end)).run(*backend, pool)[0];
      const std::vector<float> want(expected.begin() + static_cast<int64_t>(static_cast<size_t>(begin) * row),
                                    expected.begin() + static_cast<int64_t>(static_cast<size_t>(end) * row));
      ASSERT_TRUE(same_bits(want, got)) << dtype_name(dtype) << " tokens " << begin << " to " << end;
    };
    for (const int32_t chunk : {7, 64, 128, 130}) {
      for (int32_t begin = 0; begin < kTokens; begin += chunk) part(begin, std::min(begin + chunk, kTokens));
    }
    for (const int32_t position : {1, 2, 15, 16, 17, 63, 64, 126, 127, 128, 129, 200, 255, 256, 257, 299})
      part(position, position + 1);
  }
}

// Long contexts of few requests are cut along the keys and merged.
TEST(Attention, SplitDecodeEqualsJoined) {
  const auto phased = make_phased_backend(), joined = make_joined_backend();
  ThreadPool pool(3);
  for (const KvLayout layout : kLayouts) {
    for (const auto& lengths : {std::vector<Lengths>{{2047, 1}},
                                {{256, 1}},
                                {{255, 1}},
                                {{383, 1}, {384, 1}, {385, 1}, {1, 1}, {1500, 1}, {700, 9}}}) {
      const AttentionGroup group = make_group(9, 3, 64, DType::kF16, layout);
      const Step step(group, make_requests(group, lengths, 77), 3);
      const auto split = step.run(*phased, pool), whole = step.run(*joined, pool);
      for (size_t r = 0; r < split.size(); ++r) EXPECT_TRUE(same_bits(split[r], whole[r])) << lengths[r].context;
      EXPECT_LE(step.error(split), 1.0);
    }
  }
}

// vllm#54805: a decode range whose requests have unequal numbers of queries.
TEST(Attention, DecodesOfUnequalQueryLengths) {
  const auto backend = make_phased_backend();
  ThreadPool pool(2);
  const AttentionGroup group = make_group(4, 2, 64);
  for (const auto& lengths : {std::vector<Lengths>{{16, 1}, {17, 3}, {0, 2}, {31, 1}}, {{15, 1}, {16, 1}, {17, 1}}}) {
    const std::vector<RequestData> requests = make_requests(group, lengths, 9);
    for (const int32_t threshold : {1, 3}) {
      const Step step(group, requests, 1, threshold);
      const auto got = step.run(*backend, pool);
      EXPECT_LE(step.error(got), 1.0);
      for (size_t r = 0; r < requests.size(); ++r) {
        EXPECT_TRUE(same_bits(got[r], Step(group, {requests[r]}, 2, threshold).run(*backend, pool)[0])) << r;
      }
    }
  }
}

// flashinfer#996: query heads that don't come in powers of two.
TEST(Attention, HeadRatios) {
  const auto backend = make_phased_backend();
  ThreadPool pool(2);
  constexpr int32_t kHeads[][2] = {{28, 4}, {40, 8}, {24, 4}, {64, 4}, {14, 2}, {9, 3}};
  for (const auto& heads : kHeads) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      const AttentionGroup group = make_group(heads[0], heads[1], 128, dtype);
      const Step step(group, make_requests(group, {{255, 1}, {252, 4}}, 3), 1);
      EXPECT_LE(step.error(step.run(*backend, pool)), 1.0) << heads[0] << "/" << heads[1];
    }
  }
}

// A NaN in a request's query or keys reaches that request's output, and no other's.
TEST(Attention, NanStaysInItsRow) {
  const auto backend = make_phased_backend();
  ThreadPool pool(2);
  const AttentionGroup group = make_group(4, 2, 64, DType::kF16);
  const std::vector<RequestData> good = make_requests(group, {{600, 1}, {140, 20}, {0, 30}, {30, 1}}, 4);
  const auto expected = Step(group, good, 1).run(*backend, pool);
  for (const bool in_key : {false, true}) {
    for (size_t bad = 0; bad < good.size(); ++bad) {
      std::vector<RequestData> requests = good;
      std::vector<float>& poisoned = in_key ? requests[bad].k : requests[bad].q;
      poisoned[3] = std::numeric_limits<float>::quiet_NaN();  // the first head of the first key or query
      const auto got = Step(group, requests, 1).run(*backend, pool);
      for (size_t r = 0; r < good.size(); ++r) {
        if (r == bad) {
          EXPECT_TRUE(std::isnan(got[r][0])) << r;
        } else {
          EXPECT_TRUE(same_bits(expected[r], got[r])) << r;
        }
      }
      // Rows after a bad query are clean.
      if (!in_key && good[bad].lengths.query > 1) {
        EXPECT_EQ(std::memcmp(expected[bad].data() + 256, got[bad].data() + 256, 256 * sizeof(float)), 0);
      }
    }
  }
}

}  // namespace
}  // namespace quire
