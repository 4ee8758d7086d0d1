#pragma once
// Tests of very many cases try one in QUIRE_TEST_SHARE of them, for runs under a sanitizer; without it, all.
#include <algorithm>
#include <cstdlib>

namespace quire::testing {

inline int case_stride() {
  const char* value = std::getenv("QUIRE_TEST_SHARE");
  return value == nullptr ? 1 : std::max(1, std::atoi(value));
}

// What is left of `all` cases, or of a size.
template <class Number>
Number share_of(Number all) {
  return std::max(Number{1}, all / static_cast<Number>(case_stride()));
}

}  // namespace quire::testing
