#pragma once
// A model's device with a look at the clock around each op.
#include <memory>

#include "bench/op_times.h"
#include "model/device.h"

namespace quire {

// `times` outlives it and the layers made by it. Linear layers are named after their weights: qkv, o, gate_up, down,
// head.
std::unique_ptr<ModelDevice> make_timed_model_device(std::unique_ptr<ModelDevice> device, OpTimes& times);

}  // namespace quire
