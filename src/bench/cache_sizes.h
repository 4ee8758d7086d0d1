#pragma once
#include <cstdint>

namespace quire {

// Bytes of the caches as the kernel reports them (Linux, /sys); 0 = not known.
struct CacheSizes {
  int64_t l2 = 0;        // of the first processor that this process may use
  int64_t l3 = 0;        // likewise, one of them
  int64_t l3_total = 0;  // of all processors that this process may use, each cache once
};
CacheSizes cache_sizes();

}  // namespace quire
