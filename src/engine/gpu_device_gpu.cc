#include <fmt/format.h>

#include <utility>

#include "attention/registry.h"
#include "base/error.h"
#include "engine/device.h"
#include "engine/gpu_runner.h"
#include "gpu/context.h"
#include "gpu/memory.h"
#include "model/gpu_device.h"

namespace quire {
namespace {

// An error of memory from `make` says what it was for and which flags to lower.
template <class Make>
auto named(const char* purpose, const char* flags, Make make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kResourceExhausted) throw;
    throw Error(error.kind(), fmt::format("no memory for {}: {}; lower {}", purpose, error.what(), flags));
  }
}

class GpuDevice final : public EngineDevice {
 public:
  GpuDevice(std::unique_ptr<ThreadPool>& threads, const EngineConfig& config)
      : threads_(std::move(threads)), modes_{!config.enforce_eager, config.log_transfers} {}

  std::string_view name() const override { return "GPU"; }
  std::string description() const override {
    return fmt::format("{}, {}", context_.info.name, context_.info.architecture);
  }
  void use_here() override {
    threads_->pin_caller();
    gpu::use_device_here();
  }
  ThreadPool& threads() override { return *threads_; }

  // As vLLM has them: cards with much memory take more sequences.
  int64_t default_num_seqs() const override { return context_.info.total_bytes >= size_t{70} << 30 ? 1024 : 256; }
  int64_t default_batched_tokens() const override { return 8192; }
  ComputeDType compute_dtype(const std::string& name) const override {
    if (name == "auto") return ComputeDType::kAuto;
    if (name == "float32" || name == "float") return ComputeDType::kF32;
    if (name == "bfloat16") return ComputeDType::kBF16;
    return ComputeDType::kF16;  // float16, half: the option table has no others
  }
  DType automatic_kv_dtype(ComputeDType compute, const ModelConfig& model) const override {
    return gpu_activation_dtype(compute, model);
  }
  std::unique_ptr<ModelDevice> make_model_device(const Checkpoint& checkpoint, const ModelOptions& options) override {
    return make_gpu_model_device(checkpoint, options, context_, *threads_);
  }
  std::unique_ptr<AttentionBackend> make_backend(const std::string& name, const AttentionGroup& group,
                                                 ExtendStrategy strategy) override {
    return make_gpu_attention_backend(name, group, strategy, context_.stream, context_.info);
  }

  RunnerMemory runner_memory(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                             const RunnerOptions& options) const override {
    return {GpuRunner::activation_bytes(model, backend, group, options), GpuRunner::logits_bytes(model, options)};
  }
  KvBudget kv_budget(const EngineConfig& config, const RunnerMemory& runner) const override {
    constexpr long long kGraphs = 256LL << 20;  // the driver's memory for graphs and for kernels that come late
    const auto total = static_cast<long long>(context_.info.total_bytes);
    const auto free = static_cast<long long>(gpu::free_device_bytes());
    const auto still_to_come = static_cast<long long>(runner.activations + runner.logits) + kGraphs;
    const auto share = static_cast<long long>(static_cast<double>(total) * config.gpu_memory_utilization);
    const KvBudget budget{share - (total - free) - still_to_come, free - still_to_come, "--gpu-memory-utilization"};
    const bool automatic = config.kv_cache_memory_bytes <= 0 && config.num_gpu_blocks_override <= 0;
    if (automatic && budget.by_default <= 0) {
      throw Error(
          ErrorKind::kResourceExhausted,
          fmt::format("--gpu-memory-utilization {}: the share of {} bytes is too small: {} bytes of the GPU are "
                      "in use, {} are wanted for activations, logits and graphs; raise it, or lower "
                      "--max-num-batched-tokens or --max-num-seqs",
                      config.gpu_memory_utilization, share, total - free, still_to_come),
          "gpu-memory-utilization");
    }
    return budget;
  }
  KvMemory allocate_kv(size_t bytes) override {
    const auto memory = named("the KV cache", "--kv-cache-memory-bytes or --gpu-memory-utilization",
                              [&] { return std::make_shared<gpu::DeviceMemory>(bytes + sizeof(float)); });
    KvMemory result{{memory, memory->data()}, nullptr};
    result.one = reinterpret_cast<float*>(static_cast<std::byte*>(memory->data()) + bytes);
    const float one = 1.0f;
    context_.stream.copy_to_device(result.one, &one, sizeof one, "constants");
    context_.stream.wait("constants");
    return result;
  }
  std::unique_ptr<Runner> make_runner(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                      const KvCache& kv, BlockTables& tables, const RunnerOptions& options) override {
    return named("what a step needs", "--max-num-batched-tokens, --max-num-seqs or --gpu-memory-utilization", [&] {
      return std::make_unique<GpuRunner>(context_, model, backend, group, kv, tables, *threads_, options, modes_);
    });
  }

 private:
  gpu::Context context_;  // first: where it can't be had, nothing is taken
  std::unique_ptr<ThreadPool> threads_;
  GpuRunner::Modes modes_;
};

}  // namespace

std::unique_ptr<EngineDevice> make_gpu_device(std::unique_ptr<ThreadPool>& threads, const EngineConfig& config) {
  return std::make_unique<GpuDevice>(threads, config);
}

}  // namespace quire
