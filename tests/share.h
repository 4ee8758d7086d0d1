#pragma once
// Tests of very many cases try one in QUIRE_TEST_SHARE of them, for runs under a sanitizer; without it, all.
#include <algorithm>
#include <cstdlib>

namespace quire::testing {

inline int case_stride() {
  const char* value = std::getenv("QUIRE_TEST_SHARE");
  return value == nullptr ? 1 : std::max(1, std::atoi(value));
}

}  // namespace quire::testing
