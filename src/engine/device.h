#pragma once
// What an engine runs on: whose memory it takes, and who computes its steps.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "attention/backend.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "engine/block_tables.h"
#include "engine/config.h"
#include "engine/kv_cache.h"
#include "engine/runner.h"
#include "model/device.h"
#include "model/model.h"

namespace quire {

class EngineDevice {
 public:
  virtual ~EngineDevice() = default;
  virtual std::string_view name() const = 0;    // "CPU" or "GPU"
  virtual std::string description() const = 0;  // "avx512 kernels, 2 threads"
  // To be called by a thread before it uses the device. The engine's thread is the last one to do so.
  virtual void use_here() = 0;
  virtual ThreadPool& threads() = 0;

  // Sequences and tokens of a step if nobody says how many.
  virtual int64_t default_num_seqs() const = 0;
  virtual int64_t default_batched_tokens() const = 0;
  // The type of --dtype; throws Error naming what there is.
  virtual ComputeDType compute_dtype(const std::string& name) const = 0;
  // The type of the cache with --kv-cache-dtype auto.
  virtual DType automatic_kv_dtype(ComputeDType compute, const ModelConfig& model) const = 0;
  virtual std::unique_ptr<ModelDevice> make_model_device(const Checkpoint& checkpoint, const ModelOptions& options) = 0;
  // By vLLM's name; attention/registry.h.
  virtual std::unique_ptr<AttentionBackend> make_backend(const std::string& name, const AttentionGroup& group,
                                                         ExtendStrategy strategy) = 0;

  // What a runner takes besides the KV cache.
  struct RunnerMemory {
    size_t activations, logits;
  };
  virtual RunnerMemory runner_memory(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                     const RunnerOptions& options) const = 0;
  virtual KvBudget kv_budget(const EngineConfig& config, const RunnerMemory& runner) const = 0;
  virtual KvMemory allocate_kv(size_t bytes) = 0;
  virtual std::unique_ptr<Runner> make_runner(const Model& model, const AttentionBackend& backend,
                                              const AttentionGroup& group, const KvCache& kv, BlockTables& tables,
                                              const RunnerOptions& options) = 0;
};

// --device. auto: the GPU if there is one. `config` says which threads; those that are automatic are filled in. Throws
// Error naming the flag.
std::unique_ptr<EngineDevice> make_engine_device(EngineConfig& config);

// The CPU with these workers.
std::unique_ptr<EngineDevice> make_cpu_device(std::unique_ptr<ThreadPool> threads);
// GPU 0. Throws Error(kUnavailable) with the reason if there is none, or what it needs is missing. The threads are for
// work of the host; they are taken only if all goes well.
std::unique_ptr<EngineDevice> make_gpu_device(std::unique_ptr<ThreadPool>& threads, const EngineConfig& config);

}  // namespace quire
