#include "base/error.h"
#include "engine/device.h"
#include "gpu/device.h"

namespace quire {

std::unique_ptr<EngineDevice> make_gpu_device(std::unique_ptr<ThreadPool>&, const EngineConfig&) {
  gpu::use_device();  // throws
  throw Error(ErrorKind::kUnavailable, gpu::why_no_device(), "device");
}

}  // namespace quire
