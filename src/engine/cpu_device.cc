#include <fmt/format.h>

#include <utility>

#include "attention/registry.h"
#include "base/cpu_isa.h"
#include "base/error.h"
#include "base/numa.h"
#include "engine/cpu_runner.h"
#include "engine/device.h"
#include "model/cpu_device.h"

namespace quire {
namespace {

class CpuDevice final : public EngineDevice {
 public:
  explicit CpuDevice(std::unique_ptr<ThreadPool> threads) : threads_(std::move(threads)) {}

  std::string_view name() const override { return "CPU"; }
  std::string description() const override {
    return fmt::format("{} kernels, {} threads", cpu_kernels_name(), threads_->workers());
  }
  void use_here() override { threads_->pin_caller(); }
  ThreadPool& threads() override { return *threads_; }

  int64_t default_num_seqs() const override { return 256; }
  int64_t default_batched_tokens() const override { return 2048; }
  ComputeDType compute_dtype(const std::string& name) const override {
    if (name == "auto") return ComputeDType::kAuto;
    if (name == "float32" || name == "float") return ComputeDType::kF32;
    if (name == "bfloat16") return ComputeDType::kBF16;
    throw invalid_argument(
        fmt::format("--dtype {} is not supported on the CPU; there are auto, float32 and bfloat16", name), "dtype");
  }
  DType automatic_kv_dtype(ComputeDType compute, const ModelConfig& model) const override {
    if (compute == ComputeDType::kF32) return DType::kF32;
    if (compute == ComputeDType::kBF16 || model.dtype != "quantized") return DType::kBF16;
    return DType::kF16;
  }
  std::unique_ptr<ModelDevice> make_model_device(const Checkpoint& checkpoint, const ModelOptions& options) override {
    return make_cpu_model_device(checkpoint, options, *threads_);
  }
  std::unique_ptr<AttentionBackend> make_backend(const std::string& name, const AttentionGroup& group,
                                                 ExtendStrategy strategy) override {
    return make_attention_backend(name, group, strategy);
  }

  RunnerMemory runner_memory(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                             const RunnerOptions& options) const override {
    return {CpuRunner::workspace_bytes(model, backend, group, options) + CpuRunner::hidden_bytes(model, options),
            CpuRunner::logits_bytes(model, options)};
  }
  // What a runner takes is small beside a quarter of the memory.
  KvBudget kv_budget(const EngineConfig&, const RunnerMemory&) const override {
    const long long available = available_memory_bytes();
    return {available / 4, available};
  }
  KvMemory allocate_kv(size_t bytes) override { return allocate_host_kv(bytes); }
  std::unique_ptr<Runner> make_runner(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                      const KvCache& kv, BlockTables& tables, const RunnerOptions& options) override {
    return std::make_unique<CpuRunner>(model, backend, group, kv, tables, *threads_, options);
  }

 private:
  std::unique_ptr<ThreadPool> threads_;
};

}  // namespace

std::unique_ptr<EngineDevice> make_cpu_device(std::unique_ptr<ThreadPool> threads) {
  return std::make_unique<CpuDevice>(std::move(threads));
}

}  // namespace quire
