#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace quire {

// Queries are longer than keys, as in real models, so that the weights are far from equal.
constexpr float kLargestQuery = 3.0f;

// Random numbers in [-1, 1) to take runs from: values of a real step differ from one another, but they need not all be
// new.
class RandomValues {
 public:
  explicit RandomValues(size_t longest_run) : values_(kValues + longest_run) {
    uint32_t state = 0x9e3779b9;
    for (float& value : values_) {
      state ^= state << 13;
      state ^= state >> 17;
      state ^= state << 5;
      value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
  }
  const float* run() { return values_.data() + random_() % kValues; }

 private:
  static constexpr size_t kValues = (1 << 20) + 7;
  std::vector<float> values_;
  std::mt19937 random_{11};
};

}  // namespace quire
