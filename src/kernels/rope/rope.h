#pragma once
// Rotary position embedding (arXiv 2104.09864) in place.
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"

namespace quire {

// cos and sin of position * inv_freq for every position: rows of head_dim/2.
struct RopeTable {
  RopeTable(const std::vector<float>& inv_freq, int64_t max_position);  // angles in double
  const float* cos(int64_t position) const;
  const float* sin(int64_t position) const;
  int64_t half() const { return half_; }

 private:
  int64_t half_, max_position_;
  std::vector<float> cos_, sin_;  // [max_position, half]
};

// Rotates `heads` heads of head_dim = 2*half floats in each of m rows: x[i*ldx + h*head_dim + d]. interleaved: pairs (2d, 2d+1), else
// (d, d + half).
void rope(float* x, int64_t ldx, int64_t heads, const int32_t* positions, int64_t m, const RopeTable& table, bool interleaved, ThreadPool& pool);

}  // namespace quire
