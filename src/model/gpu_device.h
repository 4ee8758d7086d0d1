#pragma once
// A GPU as a device of models: weights and activations in f32, f16 or bf16, products by the vendor's library.
#include <memory>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "gpu/context.h"
#include "model/device.h"
#include "model/model.h"

namespace quire {

// The type of activations and weights for --dtype; automatic: f16 for f16 and quantized checkpoints, bf16 for bf16 and
// f32 ones, as vLLM has it.
DType gpu_activation_dtype(ComputeDType compute, const ModelConfig& model);

// The checkpoint is read by the load_...() calls only; the pool converts weights meanwhile. Throws
// Error(kResourceExhausted) with the bytes needed and free where weights don't fit.
std::unique_ptr<ModelDevice> make_gpu_model_device(const Checkpoint& checkpoint, const ModelOptions& options,
                                                   gpu::Context& context, ThreadPool& pool);

}  // namespace quire
