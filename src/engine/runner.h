#pragma once
// Computes one scheduled step: fills the staging buffer, plans attention, runs the model, samples. Everything it needs
// is allocated once.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attention/backend.h"
#include "engine/block_tables.h"
#include "engine/kv_cache.h"
#include "engine/scheduler.h"
#include "model/model.h"
#include "sample/sampler.h"

namespace quire {

struct RunnerOptions {
  int64_t max_num_seqs = 0, max_num_batched_tokens = 0, max_logits_rows = 0;
};

class Runner {
 public:
  Runner(const Model& model, const AttentionBackend& backend, const AttentionGroup& group, const KvCache& kv,
         const BlockTables& tables, ThreadPool& pool, const RunnerOptions& options);

  // Results of the step's sampled sequences, decode before extend before prefill; token -1 = no token could be chosen.
  // Prompt log-probabilities go to their requests. Valid until the next step. May throw; the next step is none the
  // worse for it.
  struct Sampled {
    Sequence* sequence;
    SampleResult result;
  };
  std::vector<Sampled>& run(const std::vector<ScheduledSequence>& step);

  // What the constructor reserves for activations and for logits.
  static size_t workspace_bytes(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                const RunnerOptions& options);
  static size_t logits_bytes(const Model& model, const RunnerOptions& options);

 private:
  // One row of logits and what it is for.
  struct LogitsRow {
    Sequence* sequence;
    int64_t prompt_position;  // of the token whose log-probability is wanted, or -1 for a sampled row
    int32_t result;           // index into sampled_
  };

  StepInput stage(const std::vector<ScheduledSequence>& step);
  void stage_phase(const std::vector<ScheduledSequence>& step, Phase phase, PhaseRange& range);
  void sample_rows();
  void sample_row(int64_t row, SamplerScratch& scratch);

  const Model& model_;
  const AttentionBackend& backend_;
  const KvCache& kv_;
  const BlockTables& tables_;
  ThreadPool& pool_;
  int64_t vocab_size_;
  int32_t block_size_;
  std::unique_ptr<AttentionPlan> plan_;
  Workspace workspace_, logits_memory_;
  float* logits_;

  // Staging: filled anew each step, never grown.
  std::vector<int32_t> token_ids_, positions_, query_offsets_, kv_lens_, table_rows_, logits_rows_;
  std::vector<int64_t> slots_;
  std::vector<LogitsRow> rows_;
  std::vector<Sampled> sampled_;
  std::vector<SamplerScratch> scratch_;  // one for each worker
};

}  // namespace quire
