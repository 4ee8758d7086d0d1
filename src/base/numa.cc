#include "base/numa.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numa.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include "base/cgroup.h"
#include "base/error.h"

namespace quire {

std::vector<int> available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(static_cast<int>(cpu));
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

int default_thread_count() {
  const auto cpus = static_cast<double>(available_cpus().size());
  const double allowed = std::min(cpus, std::ceil(read_cgroup_limits().cpus.value_or(cpus)));
  return std::max(1, static_cast<int>(allowed));
}

int numa_node_count() { return numa_available() < 0 ? 1 : std::max(1, numa_num_configured_nodes()); }

std::vector<int> numa_node_cpus(int node) {
  const std::vector<int> allowed = available_cpus();
  if (numa_available() < 0) return node == 0 ? allowed : std::vector<int>{};
  std::vector<int> cpus;
  for (const int cpu : allowed) {
    if (numa_node_of_cpu(cpu) == node) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> bind_to_numa_node(int node) {
  const int nodes = numa_node_count();
  if (node < -1 || node >= nodes) {
    throw invalid_argument(
        fmt::format("--numa-bind-nodes: there is no node {}; this machine has nodes 0 to {}", node, nodes - 1),
        "numa-bind-nodes");
  }
  if (node == -1) {
    node = 0;
    for (int other = 1; other < nodes; ++other) {
      if (numa_node_cpus(other).size() > numa_node_cpus(node).size()) node = other;
    }
  }
  std::vector<int> cpus = numa_node_cpus(node);
  if (cpus.empty()) {
    throw invalid_argument(fmt::format("--numa-bind-nodes: node {} has no processor that this process may use", node),
                           "numa-bind-nodes");
  }
  if (numa_available() >= 0) {
    bitmask* mask = numa_allocate_nodemask();
    numa_bitmask_setbit(mask, static_cast<unsigned>(node));
    numa_set_membind(mask);
    numa_free_nodemask(mask);
  }
  return cpus;
}

std::vector<int> parse_cpu_list(std::string_view text, std::string_view param) {
  const auto refuse = [&] {
    return invalid_argument(fmt::format("{}: '{}' is not a list of processors such as 0-3,8", param, text),
                            std::string(param));
  };
  constexpr int kMaxCpu = 1 << 16;
  std::vector<int> cpus;
  const char* p = text.data();
  const char* end = p + text.size();
  const auto number = [&] {
    int value = -1;
    const auto [next, error] = std::from_chars(p, end, value);
    if (error != std::errc{} || value < 0 || value >= kMaxCpu) throw refuse();
    p = next;
    return value;
  };
  for (;;) {
    const int first = number();
    int last = first;
    if (p != end && *p == '-') {
      ++p;
      last = number();
    }
    if (last < first) throw refuse();
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (p == end) break;
    if (*p++ != ',') throw refuse();
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

long long available_memory_bytes() {
  long long bytes = std::numeric_limits<long long>::max();
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  long long kib = 0;
  while (file >> key >> kib && std::getline(file, unit)) {
    if (key == "MemAvailable:") bytes = kib * 1024;
  }
  return std::min(bytes, static_cast<long long>(read_cgroup_limits().memory_bytes.value_or(bytes)));
}

}  // namespace quire
