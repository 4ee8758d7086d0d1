#pragma once
// The CPU as a device of models: all activations f32, products in the arithmetic that fits the weights.
#include <memory>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "model/device.h"
#include "model/model.h"

namespace quire {

// The checkpoint is read by the load_...() calls only; the pool is used by ops too.
std::unique_ptr<ModelDevice> make_cpu_model_device(const Checkpoint& checkpoint, const ModelOptions& options,
                                                   ThreadPool& pool);

}  // namespace quire
