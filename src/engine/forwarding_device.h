#pragma once
// Another device in all: what decorates a device overrides what it changes.
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/device.h"

namespace quire {

class ForwardingDevice : public EngineDevice {
 public:
  explicit ForwardingDevice(std::unique_ptr<EngineDevice> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  void use_here() override { inner_->use_here(); }
  ThreadPool& threads() override { return inner_->threads(); }
  int64_t default_num_seqs() const override { return inner_->default_num_seqs(); }
  int64_t default_batched_tokens() const override { return inner_->default_batched_tokens(); }
  ComputeDType compute_dtype(const std::string& name) const override { return inner_->compute_dtype(name); }
  DType automatic_kv_dtype(ComputeDType compute, const ModelConfig& model) const override {
    return inner_->automatic_kv_dtype(compute, model);
  }
  std::unique_ptr<ModelDevice> make_model_device(const Checkpoint& checkpoint, const ModelOptions& options) override {
    return inner_->make_model_device(checkpoint, options);
  }
  std::unique_ptr<AttentionBackend> make_backend(const std::string& name, const AttentionGroup& group,
                                                 ExtendStrategy strategy) override {
    return inner_->make_backend(name, group, strategy);
  }
  RunnerMemory runner_memory(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                             const RunnerOptions& options) const override {
    return inner_->runner_memory(model, backend, group, options);
  }
  KvBudget kv_budget(const EngineConfig& config, const RunnerMemory& runner) const override {
    return inner_->kv_budget(config, runner);
  }
  KvMemory allocate_kv(size_t bytes) override { return inner_->allocate_kv(bytes); }
  std::unique_ptr<Runner> make_runner(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                      const KvCache& kv, BlockTables& tables, const RunnerOptions& options) override {
    return inner_->make_runner(model, backend, group, kv, tables, options);
  }

 private:
  std::unique_ptr<EngineDevice> inner_;
};

}  // namespace quire
