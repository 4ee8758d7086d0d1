#pragma once
// The engine thread's side of the metrics: one writer, so that relaxed atomics do.
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/prometheus.h"
#include "engine/sequence.h"
#include "engine/stats.h"

namespace quire {

// By FinishReason, without kNone.
inline constexpr std::array kFinishNames = {"stop", "length", "abort", "error"};
// Why submit() turns a request away although nothing is wrong with it.
enum class Rejection : uint8_t { kQueueFull, kShutdown };
inline constexpr std::array kRejectionNames = {"max_num_queued_reqs", "shutdown"};

struct EngineMetrics::Impl {
  Impl(std::string name, int64_t max_model_len);

  // What the engine thread has to say of a sequence, in this order: it is in a step for the first time, it is about to
  // get a token, it has ended; and of a request: its last sequence has.
  void observe_start(const Sequence& sequence);
  void observe_token(const Sequence& sequence, EngineClock::time_point now);
  void observe_finish(const Sequence& sequence, FinishReason reason);
  void observe_end(const EngineRequest& request);

  void count_rejection(Rejection reason) { ++rejected[static_cast<size_t>(reason)]; }  // any thread

  Snapshot snapshot() const;

  std::string model_name;
  std::string cache_config_labels;  // written before the engine thread starts
  std::atomic<int64_t> running{0}, waiting{0}, deferred{0}, preemptions{0}, total_blocks{0}, free_blocks{0},
      prompt_tokens{0}, prompt_tokens_cached{0}, generation_tokens{0}, prefix_cache_queries{0}, prefix_cache_hits{0};
  std::array<std::atomic<int64_t>, kFinishNames.size()> finished{};
  std::array<std::atomic<int64_t>, kRejectionNames.size()> rejected{};
  Histogram time_to_first_token, inter_token_latency, time_per_output_token, e2e_latency, queue_time, inference_time,
      prefill_time, decode_time;
  Histogram request_prompt_tokens, request_generation_tokens, request_max_num_generation_tokens,
      request_params_max_tokens, request_prefill_kv_computed_tokens, request_params_n, request_num_preemptions,
      iteration_tokens;
};

}  // namespace quire
