#include "base/error.h"
#include "gpu/device.h"

namespace quire::gpu {

std::string_view platform() { return ""; }

std::string why_no_device() { return "this program was built for the CPU alone"; }

DeviceInfo use_device() { throw Error(ErrorKind::kUnavailable, "no GPU can be used: " + why_no_device(), "device"); }

void use_device_here() {}

size_t free_device_bytes() { return 0; }

}  // namespace quire::gpu
