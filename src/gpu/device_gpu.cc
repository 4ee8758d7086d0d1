#include "gpu/device.h"

#include <fmt/format.h>

#include "gpu/memory.h"
#include "gpu/probe.h"
#include "gpu/runtime.h"

namespace quire::gpu {

namespace {

// What can be told from the names alone.
bool is_built_for(const NativeDeviceProperties& properties) {
#if defined(QUIRE_HIP_ARCHITECTURES)
  constexpr std::string_view kNames = "," QUIRE_HIP_ARCHITECTURES ",";
  return kNames.find("," + architecture_of(properties) + ",") != std::string_view::npos;
#else
  (void)properties;
  return true;
#endif
}

}  // namespace

std::string_view platform() { return kPlatform; }

std::string why_no_device() {
  int count = 0;
  if (const Status status = QUIRE_RUNTIME(GetDeviceCount)(&count); status != kSuccess) {
    if (status == QUIRE_RUNTIME(ErrorSharedObjectInitFailed)) return status_text(status);  // there is no runtime
    (void)QUIRE_RUNTIME(GetLastError)();
    int driver = 0;
    const bool installed = QUIRE_RUNTIME(DriverGetVersion)(&driver) == kSuccess && driver > 0;
    if (!installed) return "there is no driver for GPUs";
    if (status != QUIRE_RUNTIME(ErrorNoDevice)) return status_text(status);
  }
  if (count == 0) return "there is no card with a driver";
  NativeDeviceProperties properties{};
  check(QUIRE_RUNTIME(GetDeviceProperties)(&properties, 0), "device properties");
  if (!is_built_for(properties) || !has_code_for_device()) {
    return fmt::format("this program has no code for {}, {}", properties.name, architecture_of(properties));
  }
  return "";
}

void use_device_here() { check(QUIRE_RUNTIME(SetDevice)(0), "choice of the device"); }

DeviceInfo use_device() {
  if (const std::string reason = why_no_device(); !reason.empty()) {
    throw Error(ErrorKind::kUnavailable, "no GPU can be used: " + reason, "device");
  }
  use_device_here();
  NativeDeviceProperties properties{};
  check(QUIRE_RUNTIME(GetDeviceProperties)(&properties, 0), "device properties");
  DeviceInfo info;
  info.name = properties.name;
  info.architecture = architecture_of(properties);
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.l2_bytes = static_cast<size_t>(properties.l2CacheSize);
  info.total_bytes = properties.totalGlobalMem;
  return info;
}

size_t free_device_bytes() {
  size_t free = 0, total = 0;
  check(QUIRE_RUNTIME(MemGetInfo)(&free, &total), "free memory");
  return free;
}

void* OfDevice::allocate(size_t bytes) {
  void* data = nullptr;
  if (QUIRE_RUNTIME(Malloc)(&data, bytes) == kSuccess) return data;
  (void)QUIRE_RUNTIME(GetLastError)();
  throw Error(ErrorKind::kResourceExhausted,
              fmt::format("{} bytes of GPU memory are wanted, {} are free", bytes, free_device_bytes()));
}

void OfDevice::release(void* data) { (void)QUIRE_RUNTIME(Free)(data); }

void* OfPinnedHost::allocate(size_t bytes) {
  void* data = nullptr;
  if (allocate_pinned(&data, bytes) == kSuccess) return data;
  (void)QUIRE_RUNTIME(GetLastError)();
  throw Error(ErrorKind::kResourceExhausted, fmt::format("{} bytes of pinned memory can't be had", bytes));
}

void OfPinnedHost::release(void* data) { (void)free_pinned(data); }

}  // namespace quire::gpu
