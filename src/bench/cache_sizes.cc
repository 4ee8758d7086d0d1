#include "bench/cache_sizes.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <set>
#include <string>

#include "base/numa.h"

namespace quire {
namespace {

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// "2048K" -> 2,097,152; 0 if it is anything else.
int64_t parse_size(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0 || value > (int64_t{1} << 32)) return 0;
  const std::string unit(end, text.data() + text.size());
  return unit == "K" ? value << 10 : unit == "M" ? value << 20 : unit.empty() ? value : 0;
}

}  // namespace

CacheSizes cache_sizes() {
  constexpr int kMostCaches = 16;
  CacheSizes sizes;
  std::set<std::string> seen;  // third-level caches, by the processors that share them
  for (const int cpu : available_cpus()) {
    for (int index = 0; index < kMostCaches; ++index) {
      const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index{}/", cpu, index);
      const std::string level = first_word(folder + "level");
      if (level.empty()) break;
      const int64_t bytes = parse_size(first_word(folder + "size"));
      if (level == "2" && sizes.l2 == 0) sizes.l2 = bytes;
      if (level != "3") continue;
      if (sizes.l3 == 0) sizes.l3 = bytes;
      if (seen.insert(first_word(folder + "shared_cpu_list")).second) sizes.l3_total += bytes;
    }
  }
  return sizes;
}

}  // namespace quire
