#pragma once
// The GPU of this process. A build for the CPU alone has the same interface and no device.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quire::gpu {

struct DeviceInfo {
  std::string name;
  std::string architecture;  // "compute capability 9.0", "gfx942"
  int major = 0, minor = 0;  // compute capability; of AMD's, what HIP makes of the architecture
  int multiprocessors = 0;
  size_t l2_bytes = 0, total_bytes = 0;
};

// Whose GPUs this program has kernels for: "CUDA", "HIP", or "" in a build for the CPU alone.
std::string_view platform();

// Why there is none: built without one, no driver, no card, no code for this card. Empty: there is one.
std::string why_no_device();

// What --device may say: auto, cpu, and what people call the GPU of a platform.
std::vector<std::string> device_names();
// Whether a name insists on the GPU. Throws Error(kUnavailable) with the reason if it does and there is none, or this
// program is for another platform.
bool insists_on_device(std::string_view name);

// Makes device 0 the caller's and describes it. Throws Error(kUnavailable) with the reason if there is none.
DeviceInfo use_device();
// The same for each further thread that uses it.
void use_device_here();

// Bytes of device memory that are free now.
size_t free_device_bytes();

}  // namespace quire::gpu
