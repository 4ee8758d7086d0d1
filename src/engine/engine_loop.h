#pragma once
// The engine thread: takes commands, schedules, runs a step, hands tokens over. It sleeps when there is nothing to do.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/engine_queue.h"
#include "engine/generation_state.h"
#include "engine/runner.h"
#include "engine/scheduler.h"
#include "engine/stats_impl.h"

namespace quire {

class EngineLoop {
 public:
  struct Options {
    int64_t max_model_len = 0;
    bool log_stats = true;
  };
  EngineLoop(const Options& options, Scheduler& scheduler, Runner& runner, BlockPool& pool, EngineQueue& queue,
             EngineMetrics& metrics);

  void run();  // until kExit; for the engine thread

  int64_t open_requests() const { return open_requests_.load(); }
  // Milliseconds that the present step has taken; 0 between steps.
  int64_t step_age_ms() const;

 private:
  void handle(EngineCommand& command);
  void submit(std::unique_ptr<EngineRequest> request);
  void abort_request(EngineRequest& request);
  void step();
  void hand_over(const Runner::Sampled& sampled);
  void finish(Sequence& sequence, GenerationEvent event);
  void record_finish(const Sequence& sequence, FinishReason reason);
  void publish_gauges();
  void log_stats();

  Options options_;
  Scheduler& scheduler_;
  Runner& runner_;
  BlockPool& pool_;
  EngineQueue& queue_;
  EngineMetrics::Impl& metrics_;
  std::unordered_map<uint64_t, std::unique_ptr<EngineRequest>> requests_;
  std::vector<EngineRequest*> to_notify_;
  std::atomic<int64_t> open_requests_{0};
  std::atomic<int64_t> step_started_ms_{0};

  EngineClock::time_point last_log_{EngineClock::now()};
  int64_t logged_prompt_tokens_ = 0, logged_generation_tokens_ = 0;
};

}  // namespace quire
