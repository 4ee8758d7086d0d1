#pragma once
// Runs of elements moved in 16 bytes at a time where they are that long. Included by GPU sources only.
#include <cstdint>

#include "gpu/numeric.h"

namespace quire::gpu {

// The bytes of kElements elements of `T` in registers. Their address is a multiple of their size, or of 16.
template <class T, int kElements>
struct Packed {
  static constexpr int kBytes = kElements * static_cast<int>(sizeof(T));
  static constexpr int kWords = (kBytes + 3) / 4, kInWord = 4 / static_cast<int>(sizeof(T));
  static_assert(kBytes <= 4 || kBytes == 8 || kBytes % 16 == 0);
  uint32_t words[kWords];

  __device__ static Packed load(const T* source) {
    Packed packed;
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) {
        const uint4 part = reinterpret_cast<const uint4*>(source)[i / 4];
        packed.words[i] = part.x, packed.words[i + 1] = part.y;
        packed.words[i + 2] = part.z, packed.words[i + 3] = part.w;
      }
    } else if constexpr (kBytes == 8) {
      const uint2 part = *reinterpret_cast<const uint2*>(source);
      packed.words[0] = part.x, packed.words[1] = part.y;
    } else if constexpr (kBytes == 4) {
      packed.words[0] = *reinterpret_cast<const uint32_t*>(source);
    } else if constexpr (kBytes == 2) {
      packed.words[0] = *reinterpret_cast<const uint16_t*>(source);
    } else {
      packed.words[0] = *reinterpret_cast<const uint8_t*>(source);
    }
    return packed;
  }

  __device__ void store(T* destination) const {
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) {
        reinterpret_cast<uint4*>(destination)[i / 4] = make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
      }
    } else if constexpr (kBytes == 8) {
      *reinterpret_cast<uint2*>(destination) = make_uint2(words[0], words[1]);
    } else if constexpr (kBytes == 4) {
      *reinterpret_cast<uint32_t*>(destination) = words[0];
    } else if constexpr (kBytes == 2) {
      *reinterpret_cast<uint16_t*>(destination) = static_cast<uint16_t>(words[0]);
    } else {
      *reinterpret_cast<uint8_t*>(destination) = static_cast<uint8_t>(words[0]);
    }
  }

  __device__ float element(int i) const {
    const uint32_t bits = words[i / kInWord] >> (i % kInWord * static_cast<int>(sizeof(T)) * 8);
    return to_float(element_of(bits, T{}));
  }

  __device__ void unpack(float (&values)[kElements]) const {
#pragma unroll
    for (int i = 0; i < kElements; ++i) values[i] = element(i);
  }

  __device__ static Packed pack(const float (&values)[kElements]) {
    Packed packed{};
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) packed.words[i] = __float_as_uint(values[i]);
    } else if constexpr (kElements == 1) {
      packed.words[0] = bits_of(from_float<T>(values[0]));
    } else {
#pragma unroll
      for (int i = 0; i < kElements; i += 2) {
        packed.words[i / kInWord] |= bits_of_pair<T>(values[i], values[i + 1])
                                     << (i % kInWord * static_cast<int>(sizeof(T)) * 8);
      }
    }
    return packed;
  }

 private:
  __device__ static float element_of(uint32_t bits, float) { return bits_to_float(bits); }
  __device__ static int8_t element_of(uint32_t bits, int8_t) { return static_cast<int8_t>(bits); }
  template <class U>
  __device__ static U element_of(uint32_t bits, U) {
    return {static_cast<decltype(U::bits)>(bits)};
  }
  __device__ static uint32_t bits_of(int8_t value) { return static_cast<uint8_t>(value); }
  template <class U>
  __device__ static uint32_t bits_of(U value) {
    return value.bits;
  }
};

template <int kElements, class T>
__device__ inline void load_floats(const T* source, float (&values)[kElements]) {
  Packed<T, kElements>::load(source).unpack(values);
}
template <int kElements, class T>
__device__ inline void store_floats(const float (&values)[kElements], T* destination) {
  Packed<T, kElements>::pack(values).store(destination);
}

// Whether an address is one for loads and stores of 16 bytes.
inline bool is_aligned_16(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

// Blocks along the second and third axes of a grid, of which hardware takes fewer: kernels loop over further rows.
inline unsigned grid_rows(int64_t rows) { return static_cast<unsigned>(rows < 65535 ? rows : 65535); }
inline unsigned ceil_blocks(int64_t work, int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

}  // namespace quire::gpu
