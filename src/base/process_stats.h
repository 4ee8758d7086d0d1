#pragma once
// What the operating system says of this process.
#include <cstdint>
#include <optional>

namespace quire {

struct ProcessStats {
  double cpu_seconds = 0;
  double start_time = 0;  // Unix time
  int64_t resident_bytes = 0, virtual_bytes = 0;
  int64_t open_files = 0, max_files = 0;  // descriptors; max_files -1 = no limit
};

// From /proc; nothing where that can't be read, as without a free descriptor.
std::optional<ProcessStats> read_process_stats();

}  // namespace quire
