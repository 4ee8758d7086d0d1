#pragma once
// Processors and NUMA nodes as this process may use them (sched_getaffinity, cgroup quota, libnuma).
#include <string>
#include <string_view>
#include <vector>

namespace quire {

std::vector<int> available_cpus();          // sorted; what the affinity mask allows
int default_thread_count();                 // available_cpus, cut to the cgroup's CPU quota; at least 1
std::vector<int> numa_node_cpus(int node);  // empty if there is no such node; allowed ones only
int numa_node_count();                      // at least 1

// Binds this process's memory to a node and returns the CPUs to pin to. node -1 = the node that most allowed CPUs
// belong to. Throws Error(kInvalidArgument) naming the node and the nodes there are.
std::vector<int> bind_to_numa_node(int node);

// "0-3,8" -> {0,1,2,3,8}; throws Error(kInvalidArgument).
std::vector<int> parse_cpu_list(std::string_view text, std::string_view param);

// Bytes that this process can still take: the smaller of MemAvailable and the cgroup's limit less its use.
long long available_memory_bytes();

}  // namespace quire
