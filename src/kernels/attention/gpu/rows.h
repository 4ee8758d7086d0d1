#pragma once
// Elements of q and out, whose type is known at run time only. Included by GPU sources only.
#include "gpu/numeric.h"
#include "tensor/head_rows.h"

namespace quire::gpu {

__device__ inline float load_as(const void* data, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[at];
    case DType::kF16:
      return to_float(static_cast<const F16*>(data)[at]);
    default:
      return to_float(static_cast<const BF16*>(data)[at]);
  }
}

__device__ inline void store_as(void* data, DType dtype, int64_t at, float value) {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(data)[at] = value;
      return;
    case DType::kF16:
      static_cast<F16*>(data)[at] = from_float<F16>(value);
      return;
    default:
      static_cast<BF16*>(data)[at] = from_float<BF16>(value);
  }
}

// Two 16-bit elements as they lie; `even`: their address is a multiple of 4.
__device__ inline uint32_t load_pair(const uint16_t* from, bool even) {
  if (even) return *reinterpret_cast<const uint32_t*>(from);
  return from[0] | static_cast<uint32_t>(from[1]) << 16;
}

// Whether every row and head begins at a multiple of `elements` elements, and of so many of their bytes.
inline bool rows_aligned(const void* data, int64_t row_stride, int64_t head_stride, DType dtype, int64_t elements) {
  const auto bytes = static_cast<uintptr_t>(elements * block_bytes(dtype));
  return reinterpret_cast<uintptr_t>(data) % bytes == 0 && row_stride % elements == 0 && head_stride % elements == 0;
}

}  // namespace quire::gpu
