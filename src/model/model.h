#pragma once
// A loaded model: weights packed for the device, one forward pass over a mixed batch.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "attention/backend.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "model/device.h"
#include "tensor/paged_kv.h"
#include "tensor/workspace.h"

namespace quire {

// What one forward pass is given; views of the memory of the model's device.
struct StepInput {
  std::span<const int32_t> token_ids;    // [tokens]
  std::span<const int32_t> positions;    // [tokens]
  std::span<const int32_t> logits_rows;  // rows whose logits are wanted, ascending
  AttentionBatch attention;
  // Rows whose state after the last norm is wanted, ascending, and where it goes: [hidden_rows.size(), hidden_size] of
  // the model's hidden_dtype().
  std::span<const int32_t> hidden_rows = {};
  void* hidden = nullptr;
};

enum class ComputeDType : uint8_t {
  kAuto,
  kF32,
  kBF16,
  kF16  // GPU only
};      // kAuto: quantized arithmetic for quantized weights, else bf16 weights

struct ModelOptions {
  ComputeDType dtype = ComputeDType::kAuto;
  int64_t max_tokens = 2048;             // rows of the largest step
  int64_t max_logits_rows = 2048;        // most of them whose logits are wanted
  std::function<void(double)> progress;  // fraction of weights loaded; may be empty
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  virtual AttentionGroup attention_group() const = 0;  // kv dtype, layout and block size are the caller's to fill in
  virtual size_t weight_bytes() const = 0;
  virtual DType hidden_dtype() const { return DType::kF32; }
  // What a forward pass has to do at least, for measurements: bytes of the weights that it reads, and operations (a
  // multiply-add is two) of the products for each row and for each row of logits.
  struct Work {
    double weight_bytes = 0, row_flop = 0, logits_row_flop = 0;
  };
  virtual Work work() const { return {static_cast<double>(weight_bytes()), 0, 0}; }
  // Scratch of forward() for the largest step, without the attention backend's own.
  virtual size_t workspace_bytes() const = 0;
  // kv [layers]. logits: row i belongs to logits_rows[i], [logits_rows.size(), vocab_size] f32. Memory is the device's;
  // pool is for attention on the CPU.
  virtual void forward(const StepInput& input, const AttentionBackend& backend, const AttentionPlan& plan,
                       std::span<const PagedKv> kv, float* logits, Workspace& workspace, ThreadPool& pool) const = 0;
};

// By the checkpoint's architecture, for the device, whose ops it will use. Throws Error(kInvalidArgument) that lists
// the architectures there are.
std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const ModelOptions& options,
                                  std::unique_ptr<ModelDevice> device);

}  // namespace quire
