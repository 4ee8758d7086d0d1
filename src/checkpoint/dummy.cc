#include "checkpoint/dummy.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace quire {
namespace {

// The finalizer of splitmix64: a bijection with full avalanche.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// Sixteen elements at a time, in GCC's vector types: the compiler splits them into the vectors of the machine.
constexpr int64_t kLanes = 16;
using U32 = uint32_t __attribute__((vector_size(kLanes * 4)));
using I32 = int32_t __attribute__((vector_size(kLanes * 4)));
using F32 = float __attribute__((vector_size(kLanes * 4)));
using U16 = uint16_t __attribute__((vector_size(kLanes * 2)));

struct Keys {
  uint32_t first, second;
};

// Elements from the low halves of their indices: a 32-bit hash, its upper 24 bits as a signed fraction of 1e-3.
inline void make_elements(const U32& low, const Keys& keys, F32& out) {
  U32 x = low + keys.first;
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ keys.second ^ x >> 15) * 0x846ca68bu;
  x ^= x >> 16;
  out = __builtin_convertvector(__builtin_bit_cast(I32, x) >> 8, F32) * (1e-3f * 0x1p-23f);
}

// Conversions round to nearest even; what they get is finite and below 1/2.
inline void store(const F32& x, float* dst) { std::memcpy(dst, &x, sizeof x); }

struct BF16 {
  uint16_t bits;
};
inline void store(const F32& x, BF16* dst) {
  const U32 bits = __builtin_bit_cast(U32, x);
  const U16 narrow = __builtin_convertvector((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16, U16);
  std::memcpy(dst, &narrow, sizeof narrow);
}

struct F16 {
  uint16_t bits;
};
inline void store(const F32& x, F16* dst) {
  constexpr uint32_t kSmallestNormal = 113u << 23, kBias = 112u << 23, kHalf = 126u << 23;
  const U32 bits = __builtin_bit_cast(U32, x);
  const U32 magnitude = bits & 0x7fffffffu;
  const U32 normal = (magnitude - kBias + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  // Adding 1/2 rounds to a multiple of 2^-24, the step of subnormal halves.
  const F32 raised = __builtin_bit_cast(F32, magnitude) + 0.5f;
  const U32 subnormal = __builtin_bit_cast(U32, raised) - kHalf;
  const U32 is_subnormal = __builtin_bit_cast(U32, magnitude < kSmallestNormal);
  const U32 wide = (bits >> 16 & 0x8000u) | (subnormal & is_subnormal) | (normal & ~is_subnormal);
  const U16 narrow = __builtin_convertvector(wide, U16);
  std::memcpy(dst, &narrow, sizeof narrow);
}

// In runs that share the high half of the index.
template <class T>
void fill(uint64_t key, int64_t first, int64_t n, T* dst) {
  U32 steps;
  for (uint32_t i = 0; i < kLanes; ++i) steps[i] = i;
  while (n > 0) {
    const auto index = static_cast<uint64_t>(first);
    const auto low = static_cast<uint32_t>(index);
    const auto run = static_cast<int64_t>(std::min(static_cast<uint64_t>(n), (uint64_t{1} << 32) - low));
    const uint64_t hash = mix(key + (index >> 32));
    const Keys keys{static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
    F32 x;
    int64_t i = 0;
    for (; i + kLanes <= run; i += kLanes) {
      make_elements(steps + (low + static_cast<uint32_t>(i)), keys, x);
      store(x, dst + i);
    }
    if (i < run) {
      T last[kLanes];
      make_elements(steps + (low + static_cast<uint32_t>(i)), keys, x);
      store(x, last);
      std::memcpy(dst + i, last, static_cast<size_t>(run - i) * sizeof(T));
    }
    first += run;
    n -= run;
    dst += run;
  }
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
      return fill(key, first, n, static_cast<float*>(dst));
    case DType::kF16:
      return fill(key, first, n, static_cast<F16*>(dst));
    case DType::kBF16:
      return fill(key, first, n, static_cast<BF16*>(dst));
    default:
      throw std::logic_error("dummy weights are F32, F16 or BF16");
  }
}

}  // namespace quire
