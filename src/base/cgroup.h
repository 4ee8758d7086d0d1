#pragma once
// What control groups leave to this process: by the files of version 2 and of version 1, of its own group and of all
// groups above it.
#include <cstdint>
#include <optional>
#include <string>

namespace quire {

struct CgroupLimits {
  std::optional<double> cpus;           // time of that many processors
  std::optional<int64_t> memory_bytes;  // that are still free
};

// root: of /proc and /sys; other than "" for tests. What can't be read limits nothing.
CgroupLimits read_cgroup_limits(const std::string& root = "");

}  // namespace quire
