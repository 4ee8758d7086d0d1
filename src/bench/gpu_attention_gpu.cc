#include <algorithm>
#include <cmath>

#include "attention/registry.h"
#include "bench/attention.h"
#include "bench/gpu_attention_step.h"
#include "bench/gpu_limits.h"
#include "bench/gpu_timing.h"
#include "bench/timing.h"
#include "gpu/device.h"
#include "gpu/memory.h"
#include "gpu/stream.h"

namespace quire {
namespace {

// A graph holds whole rounds of all layers, as many as make it long beside the gap between two graphs.
constexpr double kGraphSeconds = 2e-3;
constexpr int kMostRuns = 2048;  // in a graph

class GpuAttentionDevice final : public AttentionDevice {
 public:
  const char* automatic_kv_dtype() const override { return "bfloat16"; }
  std::unique_ptr<AttentionBackend> make_backend(const AttentionRow& row) override {
    return make_gpu_attention_backend(row.backend, row.group, row.strategy, stream_, info_);
  }
  DeviceLimits measure_limits() override {
    GpuScope scope;
    scope.copy = false;
    scope.products = {{8192, 8192, 8192}};
    return measure_gpu_limits(scope);
  }
  AttentionResult measure(const AttentionRow& row, const AttentionBackend& backend,
                          const AttentionBenchmarkOptions& options, int64_t last_cache_bytes) override;

 private:
  gpu::DeviceInfo info_ = gpu::use_device();
  gpu::Stream stream_;
  ThreadPool pool_{1};  // for the backend's interface, and to write keys and values
};

AttentionResult GpuAttentionDevice::measure(const AttentionRow& row, const AttentionBackend& backend,
                                            const AttentionBenchmarkOptions& options, int64_t last_cache_bytes) {
  constexpr size_t kPlans = 9, kLeastGraphs = 5, kMostGraphs = 50;
  constexpr double kLongEnough = 0.1;  // seconds
  const GpuAttentionStep step(row, options.layers, last_cache_bytes, stream_, pool_);
  AttentionResult result;
  result.row = row;
  result.backend = backend.name();
  result.work = attention_work(row);
  result.layers = step.layers();

  const auto requests = static_cast<int32_t>(result.work.requests), tokens = static_cast<int32_t>(result.work.tokens);
  const auto plan = backend.make_plan(row.group, requests, tokens);
  const gpu::DeviceMemory scratch(backend.workspace_bytes(row.group, requests, tokens));
  Workspace workspace(scratch.data(), scratch.bytes());
  std::vector<double> plan_seconds;
  for (size_t i = 0; i < kPlans; ++i) plan_seconds.push_back(seconds_of([&] { backend.plan(step.batch(), *plan); }));
  result.plan_seconds = median(plan_seconds);

  const auto run = [&](int32_t layer) {
    backend.run(*plan, step.q(), step.layer(layer), step.out(), workspace, pool_);
  };
  const auto rounds = [&](int times) {
    return stream_.capture([&] {
      for (int i = 0; i < times; ++i) {
        for (int32_t layer = 0; layer < step.layers(); ++layer) run(layer);
      }
    });
  };
  run(0);
  if (options.check) result.check = step.check();

  int times = 1;
  gpu::Graph graph = rounds(times);
  const auto graph_seconds = [&] { return gpu_seconds_of(stream_, [&] { stream_.launch(graph, "attention"); }); };
  graph_seconds();  // the first launch uploads it
  const double once = std::max(graph_seconds(), 1e-7);
  times = static_cast<int>(std::ceil(kGraphSeconds / once));
  times = std::clamp(times, 1, std::max(kMostRuns / step.layers(), 1));
  if (times > 1) {
    graph = rounds(times);
    graph_seconds();
  }
  double total = 0;
  const auto enough = [&] {
    const size_t n = result.seconds.size();
    if (options.iters > 0) return n == static_cast<size_t>(options.iters);
    return n >= kMostGraphs || (n >= kLeastGraphs && total >= kLongEnough);
  };
  while (!enough()) {
    const double seconds = graph_seconds();
    total += seconds;
    result.seconds.push_back(seconds / times / step.layers());
  }
  return result;
}

}  // namespace

std::unique_ptr<AttentionDevice> make_gpu_attention_device() { return std::make_unique<GpuAttentionDevice>(); }

}  // namespace quire
