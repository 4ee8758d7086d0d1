#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace quire {
namespace {

// The words of a one-line file of the kernel's.
std::vector<std::string> words_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(std::move(word));
  return words;
}

// Positive; none for "max", -1, and what is no number.
std::optional<double> number(std::string_view word) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value == 0) return std::nullopt;
  return static_cast<double>(value);
}

std::optional<double> number_in(const std::string& path) {
  const std::vector<std::string> words = words_of(path);
  return words.empty() ? std::nullopt : number(words[0]);
}

// The number behind `key` in a file of lines "key number".
std::optional<double> number_of(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string word, value; file >> word >> value;) {
    if (word == key) return number(value);
  }
  return std::nullopt;
}

template <class T>
void lower(std::optional<T>& limit, T other) {
  limit = limit ? std::min(*limit, other) : other;
}

void limit_cpus(CgroupLimits& limits, std::optional<double> quota, std::optional<double> period) {
  if (quota && period) lower(limits.cpus, *quota / *period);
}

// cached: bytes of `used` that hold files which nobody uses now, such as a model's that was read before; the kernel
// takes them where memory is wanted.
void limit_memory(CgroupLimits& limits, std::optional<double> limit, std::optional<double> used,
                  std::optional<double> cached) {
  constexpr double kNoLimit = 9e18;  // version 1 writes the largest multiple of a page
  if (!limit || *limit >= kNoLimit) return;
  const double held = std::max(0.0, used.value_or(0) - cached.value_or(0));
  lower(limits.memory_bytes, static_cast<int64_t>(std::max(0.0, *limit - held)));
}

void read_version_2(const std::string& folder, CgroupLimits& limits) {
  const std::vector<std::string> cpu = words_of(folder + "/cpu.max");
  if (cpu.size() == 2) limit_cpus(limits, number(cpu[0]), number(cpu[1]));
  limit_memory(limits, number_in(folder + "/memory.max"), number_in(folder + "/memory.current"),
               number_of(folder + "/memory.stat", "inactive_file"));
}

void read_version_1_cpu(const std::string& folder, CgroupLimits& limits) {
  limit_cpus(limits, number_in(folder + "/cpu.cfs_quota_us"), number_in(folder + "/cpu.cfs_period_us"));
}

void read_version_1_memory(const std::string& folder, CgroupLimits& limits) {
  limit_memory(limits, number_in(folder + "/memory.limit_in_bytes"), number_in(folder + "/memory.usage_in_bytes"),
               number_of(folder + "/memory.stat", "total_inactive_file"));
}

// `read` for the group and all above it. A container sees its own group where the hierarchy is mounted, whatever the
// path says: then the folders of the path aren't there, and limit nothing.
template <class Read>
void read_upwards(const std::string& mount, std::string path, CgroupLimits& limits, Read read) {
  while (!path.empty() && path != "/") {
    read(mount + path, limits);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  read(mount, limits);
}

bool has_word(std::string_view list, std::string_view word) {  // of a list with commas
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

CgroupLimits read_cgroup_limits(const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  CgroupLimits limits;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // number:controllers:path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) {  // version 2, alone or beside version 1
      read_upwards(mounts, path, limits, read_version_2);
      read_upwards(mounts + "/unified", path, limits, read_version_2);
    }
    // Mounted under the names of all its controllers, with links from each.
    if (has_word(controllers, "cpu")) {
      read_upwards(mounts + "/cpu", path, limits, read_version_1_cpu);
      const std::string folder = mounts + "/";
      read_upwards(folder + controllers, path, limits, read_version_1_cpu);
    }
    if (has_word(controllers, "memory")) read_upwards(mounts + "/memory", path, limits, read_version_1_memory);
  }
  return limits;
}

}  // namespace quire
