#pragma once
// Owned memory of the device, and of the host where the device reaches it without a stop.
#include <cstddef>
#include <utility>

namespace quire::gpu {

struct OfDevice {
  static void* allocate(size_t bytes);
  static void release(void* data);
};
struct OfPinnedHost {
  static void* allocate(size_t bytes);
  static void release(void* data);
};

template <class Kind>
class OwnedMemory {
 public:
  OwnedMemory() = default;
  // Throws Error(kResourceExhausted) with the bytes asked for and, of the device, free.
  explicit OwnedMemory(size_t bytes) : data_(bytes == 0 ? nullptr : Kind::allocate(bytes)), bytes_(bytes) {}
  ~OwnedMemory() {
    if (data_ != nullptr) Kind::release(data_);
  }
  OwnedMemory(OwnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

using DeviceMemory = OwnedMemory<OfDevice>;
using PinnedMemory = OwnedMemory<OfPinnedHost>;

}  // namespace quire::gpu
