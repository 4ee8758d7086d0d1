#pragma once
// What random steps of attention have in common, on every device.
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "attention/attention_case.h"

namespace quire::testing {

// What one random case is about.
struct RandomCase {
  Shape shape;
  std::vector<RequestData> requests;
  int32_t decode_threshold = 1;
};

template <class T, size_t kN>
T pick(std::mt19937& random, const T (&values)[kN]) {
  return values[random() % kN];
}

inline bool chance(std::mt19937& random, uint32_t percent) { return random() % 100 < percent; }

inline std::vector<float> random_floats(std::mt19937& random, size_t n, float low, float high) {
  std::vector<float> values(n);
  for (float& x : values) x = std::uniform_real_distribution<float>(low, high)(random);
  return values;
}

// Scale, window (one of `windows`), soft cap, slopes and sinks: each of them now and then.
inline void add_random_features(std::mt19937& random, std::span<const int32_t> windows, Shape& shape) {
  AttentionGroup& group = shape.group;
  if (chance(random, 30)) group.scale = 0.05f;
  if (chance(random, 40)) group.window = windows[random() % windows.size()];
  if (chance(random, 25)) group.soft_cap = chance(random, 50) ? 2.0f : 30.0f;
  const auto heads = static_cast<size_t>(group.heads);
  if (chance(random, 25)) shape.slopes = random_floats(random, heads, 0.0f, 0.5f);
  if (chance(random, 25)) shape.sinks = random_floats(random, heads, -2.0f, 6.0f);
}

}  // namespace quire::testing
