#include "base/error.h"
#include "bench/attention.h"
#include "gpu/device.h"

namespace quire {

std::unique_ptr<AttentionDevice> make_gpu_attention_device() {
  gpu::use_device();  // throws
  throw Error(ErrorKind::kUnavailable, gpu::why_no_device(), "device");
}

}  // namespace quire
