#pragma once
// Random steps over every feature of attention on the GPU.
#include <random>
#include <string>
#include <vector>

#include "attention/random_features.h"
#include "share.h"

namespace quire::testing {

inline std::vector<Lengths> random_lengths(std::mt19937& random) {
  const auto upto = [&](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint32_t>(n + 1)); };
  const int32_t part = case_stride() > 1 ? 3 : 1;
  const int32_t longest = random() % 8 == 0 ? 1500 : 300 / part;
  std::vector<Lengths> lengths;
  for (int32_t i = upto(5); i > 0; --i) lengths.push_back({1 + upto(longest), 1});
  for (int32_t i = upto(2); i > 0; --i) lengths.push_back({1 + upto(200 / part), 2 + upto(70 / part)});
  for (int32_t i = upto(2); i > 0; --i) lengths.push_back({0, 1 + upto(150 / part)});
  if (lengths.empty()) lengths.push_back({upto(20), 1});
  std::shuffle(lengths.begin(), lengths.end(), random);
  return lengths;
}

// The scales of an 8-bit cache.
inline void add_random_scaling(std::mt19937& random, Shape& shape) {
  AttentionGroup& group = shape.group;
  if (group.kv_dtype == DType::kI8) {
    group.kv_scaling = KvScaling::kTokenHead;
  } else if (group.kv_dtype == DType::kF8E4M3 || group.kv_dtype == DType::kF8E5M2) {
    constexpr KvScaling kScalings[] = {KvScaling::kTensor, KvScaling::kHead, KvScaling::kTokenHead};
    group.kv_scaling = pick(random, kScalings);
    if (group.kv_scaling != KvScaling::kTokenHead) {
      const size_t scales = group.kv_scaling == KvScaling::kTensor ? 1 : static_cast<size_t>(group.kv_heads);
      shape.k_scales = random_floats(random, scales, 0.01f, 2.0f);
      shape.v_scales = random_floats(random, scales, 0.01f, 2.0f);
    }
  }
}

inline RandomCase random_case(uint32_t seed) {
  std::mt19937 random(seed);
  constexpr int32_t kHeads[][2] = {{1, 1}, {2, 1}, {3, 1},  {4, 1},  {5, 1}, {6, 2},  {7, 1},
                                   {8, 1}, {9, 3}, {14, 2}, {12, 1}, {2, 2}, {16, 1}, {20, 1}};
  constexpr int32_t kHeadDims[] = {8, 16, 24, 40, 64, 72, 80, 96, 112, 128, 192, 256, 512};
  constexpr int32_t kFastHeadDims[] = {64, 128};
  constexpr int32_t kWindows[] = {1, 2, 15, 16, 20, 63, 64, 65, 100, 127, 128, 129, 250, 1000};
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI8};
  constexpr DType kFastTypes[] = {DType::kF16, DType::kBF16};
  const auto& heads = kHeads[random() % std::size(kHeads)];
  const bool fast = chance(random, 60);  // a shape that the kernels for the common case take
  Shape shape(make_group(heads[0], heads[1], fast ? pick(random, kFastHeadDims) : pick(random, kHeadDims),
                         fast ? pick(random, kFastTypes) : pick(random, kTypes),
                         chance(random, 50) ? KvLayout::kShuffle : KvLayout::kPlain,
                         16 * (1 + static_cast<int32_t>(random() % 3))));
  AttentionGroup& group = shape.group;
  if (!fast && group.layout == KvLayout::kPlain && chance(random, 25)) group.v_head_dim = pick(random, kHeadDims);
  add_random_features(random, kWindows, shape);
  add_random_scaling(random, shape);
  if (fast) {
    shape.io = group.kv_dtype;
  } else if (chance(random, 40)) {
    shape.io = chance(random, 50) ? DType::kF16 : DType::kBF16;
  }
  return {shape, make_requests(shape, random_lengths(random), static_cast<uint32_t>(random())),
          chance(random, 30) ? 4 : 1};
}

// The same of shapes that matrix instructions take: q of 16 bits, K and V of the same type or of 8 bits.
inline RandomCase random_matrix_case(uint32_t seed) {
  std::mt19937 random(seed + 5000);
  constexpr int32_t kHeads[][2] = {{1, 1}, {2, 1}, {4, 1}, {6, 2}, {7, 1}, {8, 1}, {16, 2}, {12, 1}, {20, 1}, {34, 1}};
  constexpr int32_t kHeadDims[] = {8, 24, 64, 64, 72, 80, 96, 128, 128, 136, 192, 256};
  constexpr int32_t kWindows[] = {1, 2, 15, 16, 20, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000};
  constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI8};
  const auto& heads = kHeads[random() % std::size(kHeads)];
  Shape shape(make_group(heads[0], heads[1], pick(random, kHeadDims), pick(random, kTypes),
                         chance(random, 50) ? KvLayout::kShuffle : KvLayout::kPlain,
                         16 * (1 + static_cast<int32_t>(random() % 3))));
  AttentionGroup& group = shape.group;
  if (group.layout == KvLayout::kPlain && chance(random, 25)) group.v_head_dim = pick(random, kHeadDims);
  add_random_features(random, kWindows, shape);
  shape.io = group.kv_dtype;
  if (block_bytes(group.kv_dtype) == 1) {
    add_random_scaling(random, shape);
    shape.io = chance(random, 50) ? DType::kF16 : DType::kBF16;
  }
  return {shape, make_requests(shape, random_lengths(random), static_cast<uint32_t>(random())),
          chance(random, 30) ? 4 : 1};
}

inline std::string describe(const RandomCase& c) {
  const AttentionGroup& g = c.shape.group;
  std::string text = "heads " + std::to_string(g.heads) + "/" + std::to_string(g.kv_heads) + ", head sizes " +
                     std::to_string(g.head_dim) + "/" + std::to_string(g.v_head_dim) + ", KV " +
                     std::string(dtype_name(g.kv_dtype)) + (g.layout == KvLayout::kShuffle ? " shuffle" : " plain") +
                     ", block " + std::to_string(g.block_size) + ", window " + std::to_string(g.window) + ", cap " +
                     std::to_string(g.soft_cap) + (c.shape.slopes.empty() ? "" : ", slopes") +
                     (c.shape.sinks.empty() ? "" : ", sinks") + ", io " + std::string(dtype_name(c.shape.io)) +
                     ", threshold " + std::to_string(c.decode_threshold) + ", requests";
  for (const RequestData& r : c.requests)
    text += " " + std::to_string(r.lengths.context) + "+" + std::to_string(r.lengths.query);
  return text;
}

}  // namespace quire::testing
