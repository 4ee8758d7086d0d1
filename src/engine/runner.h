#pragma once
// Computes scheduled steps: stages their input, plans attention, runs the model, samples. Everything it needs is
// allocated once.
#include <cstdint>
#include <vector>

#include "engine/scheduler.h"
#include "sample/sampler.h"

namespace quire {

constexpr int64_t kDecodeThreshold = 1;  // most tokens of a decode: there is no speculation yet

struct RunnerOptions {
  int64_t max_num_seqs = 0, max_num_batched_tokens = 0, max_logits_rows = 0;
  int64_t max_hidden_rows = 0;      // of a step, for pooling
  int64_t blocks_per_sequence = 0;  // of the longest one
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Results of a step's sampled sequences, decode before extend before prefill; token -1 = no token could be chosen.
  // Prompt log-probabilities go to their requests.
  struct Sampled {
    Sequence* sequence;  // null: forgotten meanwhile
    SampleResult result;
  };
  // Begins a step; computes it, where nothing is gained by returning sooner. May throw; then the step does not count.
  virtual void submit(const std::vector<ScheduledSequence>& step) = 0;
  // Waits for the oldest step that was submitted. Valid until the next submit(). May throw; its results are lost then.
  virtual std::vector<Sampled>& collect() = 0;
  // Whether another step may be submitted before the last one is collected.
  virtual bool may_run_ahead() const { return false; }
  // The sequence has ended: nothing of it comes out of collect() any more.
  virtual void forget(const Sequence& sequence) = 0;
};

// One row of logits and what it is for.
struct LogitsRow {
  Sequence* sequence;       // null: it is for nothing
  int64_t prompt_position;  // of the token whose log-probability is wanted, or -1 for a sampled row
  int32_t result;           // index among the step's results
};

}  // namespace quire
