#pragma once
// Counters, gauges and histograms of the engine under vLLM's names (vllm:num_requests_running, ...), updated by the
// engine thread and rendered as Prometheus text by any thread.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace quire {

class EngineMetrics {
 public:
  explicit EngineMetrics(std::string model_name, int64_t max_model_len);
  ~EngineMetrics();

  // What tests, /load and the periodic line read.
  struct Snapshot {
    int64_t running = 0, waiting = 0, preemptions = 0;
    int64_t total_blocks = 0, free_blocks = 0;
    int64_t prompt_tokens = 0, generation_tokens = 0, prefix_cache_queries = 0, prefix_cache_hits = 0;
  };
  Snapshot snapshot() const;
  std::string render() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
