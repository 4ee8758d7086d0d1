#pragma once
// The GPU of this process. A build without CUDA has the same interface and no device.
#include <cstddef>
#include <string>

namespace quire::gpu {

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  size_t l2_bytes = 0, total_bytes = 0;
};

// Why there is none: built without one, no driver, no card, no code for this card. Empty: there is one.
std::string why_no_device();

// Makes device 0 the caller's and describes it. Throws Error(kUnavailable) with the reason if there is none.
DeviceInfo use_device();
// The same for each further thread that uses it.
void use_device_here();

// Bytes of device memory that are free now.
size_t free_device_bytes();

}  // namespace quire::gpu
