#include "checkpoint/dummy.h"

#include <stdexcept>

namespace quire {
namespace {

// The finalizer of splitmix64: a bijection with full avalanche.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

float element(uint64_t key, int64_t index) {
  const uint64_t bits = mix(key + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u);
  return (static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f) * 1e-3f;  // 24 bits in [0, 2) - 1
}

}  // namespace

uint64_t dummy_key(uint64_t seed, std::string_view tensor) {
  uint64_t key = mix(seed + 0x9e3779b97f4a7c15u);
  for (const char c : tensor) key = mix(key ^ static_cast<unsigned char>(c));
  return key;
}

void fill_dummy(uint64_t key, int64_t first, int64_t n, DType dtype, void* dst) {
  switch (dtype) {
    case DType::kF32:
      for (int64_t i = 0; i < n; ++i) static_cast<float*>(dst)[i] = element(key, first + i);
      return;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) static_cast<uint16_t*>(dst)[i] = f32_to_f16(element(key, first + i));
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) static_cast<uint16_t*>(dst)[i] = f32_to_bf16(element(key, first + i));
      return;
    default:
      throw std::logic_error("dummy weights are F32, F16 or BF16");
  }
}

}  // namespace quire
