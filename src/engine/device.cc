#include "engine/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/numa.h"
#include "gpu/device.h"

namespace quire {
namespace {

// Binds memory and makes the pool of workers; fills in config.threads.
std::unique_ptr<ThreadPool> make_threads(EngineConfig& config) {
  std::vector<int> pins;  // empty = not pinned
  if (!config.numa_bind_cpus.empty()) {
    pins = parse_cpu_list(config.numa_bind_cpus[0], "--numa-bind-cpus");
  } else if (config.numa_bind || !config.numa_bind_nodes.empty()) {
    pins = bind_to_numa_node(config.numa_bind_nodes.empty() ? -1 : config.numa_bind_nodes[0]);
  }
  if (config.threads <= 0) {
    config.threads = default_thread_count();
    if (!pins.empty()) config.threads = std::min(config.threads, static_cast<int32_t>(pins.size()));
  }
  if (!pins.empty() && config.threads > static_cast<int32_t>(pins.size())) {
    log_warning(fmt::format("--threads {}: there are {} processors to bind them to, which they share; that is slow",
                            config.threads, pins.size()));
  }
  return std::make_unique<ThreadPool>(config.threads, std::move(pins));
}

}  // namespace

std::unique_ptr<EngineDevice> make_engine_device(EngineConfig& config) {
  std::unique_ptr<ThreadPool> threads = make_threads(config);
  if (gpu::insists_on_device(config.device)) return make_gpu_device(threads, config);
  if (config.device == "auto") {
    try {
      const std::string reason = gpu::why_no_device();
      if (reason.empty()) return make_gpu_device(threads, config);
      log_info(fmt::format("no GPU is used: {}", reason));
    } catch (const Error& error) {
      log_warning(fmt::format("no GPU is used: {}", error.what()));
    }
  }
  if (config.enforce_eager || config.log_transfers) {
    log_info("--enforce-eager and --log-transfers are for the GPU: nothing changes on the CPU");
  }
  return make_cpu_device(std::move(threads));
}

}  // namespace quire
