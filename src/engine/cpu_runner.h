#pragma once
// The runner of the CPU: staging, model and sampler all work on the caller's memory.
#include <memory>
#include <vector>

#include "attention/backend.h"
#include "engine/block_tables.h"
#include "engine/kv_cache.h"
#include "engine/logits_sampler.h"
#include "engine/pooling.h"
#include "engine/runner.h"
#include "engine/step_order.h"
#include "model/model.h"

namespace quire {

class CpuRunner final : public Runner {
 public:
  CpuRunner(const Model& model, const AttentionBackend& backend, const AttentionGroup& group, const KvCache& kv,
            const BlockTables& tables, ThreadPool& pool, const RunnerOptions& options);

  void submit(const std::vector<ScheduledSequence>& step) override;
  std::vector<Sampled>& collect() override { return sampled_; }
  void forget(const Sequence& sequence) override;

  // What the constructor reserves for activations, logits and states to be pooled.
  static size_t workspace_bytes(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                const RunnerOptions& options);
  static size_t logits_bytes(const Model& model, const RunnerOptions& options);
  static size_t hidden_bytes(const Model& model, const RunnerOptions& options);

 private:
  StepInput stage(const std::vector<ScheduledSequence>& step);
  void stage_sequence(const ScheduledSequence& scheduled);

  const Model& model_;
  const AttentionBackend& backend_;
  const KvCache& kv_;
  const BlockTables& tables_;
  ThreadPool& pool_;
  int32_t block_size_;
  std::unique_ptr<AttentionPlan> plan_;
  Workspace workspace_, logits_memory_, hidden_memory_;
  float *logits_, *hidden_;

  // Staging: filled anew each step, never grown.
  StepOrder order_;
  std::vector<int32_t> token_ids_, positions_, query_offsets_, kv_lens_, table_rows_, logits_rows_, hidden_rows_;
  std::vector<int64_t> slots_;
  std::vector<LogitsRow> rows_;
  std::vector<HiddenRows> pooled_;
  std::vector<Sampled> sampled_;
  LogitsSampler sampler_;
};

}  // namespace quire
