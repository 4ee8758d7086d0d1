#pragma once
// Rows of attention heads that need not be contiguous, such as q inside a fused qkv product.
#include <cstdint>

#include "tensor/dtype.h"

namespace quire {

// Element d of head h of row i is data[i * row_stride + h * head_stride + d]. dtype: kF32, kF16 or kBF16.
struct HeadRows {
  void* data = nullptr;
  int64_t row_stride = 0, head_stride = 0;
  DType dtype = DType::kF32;
};
struct ConstHeadRows {
  const void* data = nullptr;
  int64_t row_stride = 0, head_stride = 0;
  DType dtype = DType::kF32;
};

}  // namespace quire
