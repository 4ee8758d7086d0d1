#pragma once
// Wall time of short work, repeated.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "bench/python_format.h"

namespace quire {

template <class Fn>
double seconds_of(Fn&& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double median(std::vector<double> values) {  // not empty
  std::sort(values.begin(), values.end());
  return percentile(values, 50);
}

}  // namespace quire
