#pragma once
// The engine thread: takes commands, schedules, runs a step, hands tokens over. It sleeps when there is nothing to do.
// Nothing that goes wrong ends it: what fails, fails for the requests that were being served.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine_queue.h"
#include "engine/generation_state.h"
#include "engine/runner.h"
#include "engine/scheduler.h"
#include "engine/stats_impl.h"
#include "engine/stats_line.h"

namespace quire {

class EngineLoop {
 public:
  struct Options {
    int64_t max_model_len = 0;
    bool log_stats = true;
    std::string_view device = "CPU";  // for the log; of static storage
  };
  EngineLoop(const Options& options, Scheduler& scheduler, Runner& runner, BlockPool& pool, EngineQueue& queue,
             EngineMetrics& metrics);

  void run();  // until kExit; for the engine thread

  // Any thread.
  int64_t step_age_ms() const;  // that the present step has taken; 0 between steps
  int32_t failed_in_a_row() const { return failed_in_a_row_.load(); }

 private:
  bool turn();  // false: exit
  void take_commands();
  void handle(EngineCommand& command);
  void start(std::unique_ptr<EngineRequest>& request);
  EngineRequest* find(uint64_t number) const;
  void stop_choice(Sequence& sequence);
  void end_request(EngineRequest& request, FinishReason reason, const char* error);
  void end_all(FinishReason reason, const char* error);
  void step();
  bool submit_step();  // false: no step is under way
  void collect_steps(int32_t keep);
  void take_out(Sequence& sequence);
  bool idle() const { return scheduler_.idle() && steps_under_way_ == 0; }
  void note_started(const std::vector<ScheduledSequence>& step, EngineClock::time_point now);
  void hand_over(Runner::Sampled& sampled, EngineClock::time_point now);
  void finish(Sequence& sequence, GenerationEvent event);
  void left(EngineRequest& request);      // one of its sequences has ended
  void announce(EngineRequest& request);  // its client is told at the end of this turn
  void publish_gauges();
  void notify_and_sweep();
  void log_stats() noexcept;

  Options options_;
  Scheduler& scheduler_;
  Runner& runner_;
  BlockPool& pool_;
  EngineQueue& queue_;
  EngineMetrics::Impl& metrics_;
  StatsLine stats_line_;
  std::vector<EngineCommand> commands_;  // taken from the queue; those before next_command_ are done
  size_t next_command_ = 0;
  bool exiting_ = false;
  std::vector<std::unique_ptr<EngineRequest>> requests_;  // open ones
  std::vector<EngineRequest*> to_notify_;                 // has room for all of them
  int64_t ended_ = 0;                                     // requests to forget at the end of this turn
  std::array<std::vector<Sequence*>, 2> under_way_;       // of the steps submitted and not collected, oldest first
  int32_t steps_under_way_ = 0;
  std::atomic<int64_t> step_started_ms_{0};
  std::atomic<int32_t> failed_in_a_row_{0};
};

}  // namespace quire
