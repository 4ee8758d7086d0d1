#include "base/error.h"
#include "bench/gpu_limits.h"
#include "gpu/device.h"

namespace quire {

DeviceLimits measure_gpu_limits(const GpuScope&) {
  gpu::use_device();  // throws
  throw Error(ErrorKind::kUnavailable, gpu::why_no_device(), "device");
}

}  // namespace quire
