#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu_isa.h"
#include "kernels/simd/vector_kernels.h"

namespace quire {

// n floats, standard normal with a few large outliers, as activations are.
inline std::vector<float> random_floats(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random) * (random() % 97 == 0 ? 20.0f : 1.0f);
  return values;
}

// The tables of the instruction sets that this machine has, by name.
inline std::vector<std::pair<std::string, const VectorKernels*>> all_vector_kernels() {
  std::vector<std::pair<std::string, const VectorKernels*>> all = {{"scalar", &vector_kernels_scalar()}};
  if (cpu_has(CpuIsa::kAvx2)) all.emplace_back("avx2", &vector_kernels_avx2());
  if (cpu_has(CpuIsa::kAvx512)) all.emplace_back("avx512", &vector_kernels_avx512());
  return all;
}

}  // namespace quire
