#pragma once
// The input of one step as it lies, piece after piece, in pinned memory and, after a single copy, at the same places on
// the device.
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace quire {

class StagingLayout {
 public:
  // Reserves n elements; returns their offset in bytes.
  template <class T>
  size_t add(int64_t n) {
    constexpr size_t kAlignment = 16;
    const size_t at = (bytes_ + kAlignment - 1) / kAlignment * kAlignment;
    bytes_ = at + static_cast<size_t>(n) * sizeof(T);
    return at;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

}  // namespace quire
