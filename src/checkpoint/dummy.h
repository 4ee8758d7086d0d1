#pragma once
// Made-up weights: uniform in +-1e-3 from a counter hash of (seed, tensor name, element index), so any split of the
// work gives the same.
#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace quire {

uint64_t dummy_key(uint64_t seed, std::string_view tensor);

// Elements [first, first + n) of a tensor of type kF32, kF16 or kBF16.
void fill_dummy(uint64_t key, int64_t first, int64_t n, DType dtype, void* dst);

}  // namespace quire
