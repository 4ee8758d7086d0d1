#pragma once
// A CPU engine that says where its time goes: the parts of another one, with a look at the clock around each op.
#include <memory>

#include "bench/op_times.h"
#include "engine/device.h"

namespace quire {

// `times` outlives the device and everything made by it. Throws Error(kInvalidArgument) for a GPU, whose ops are not
// done when they return.
std::unique_ptr<EngineDevice> make_timed_device(std::unique_ptr<EngineDevice> device, OpTimes& times);

}  // namespace quire
