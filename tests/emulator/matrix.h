#pragma once
// NVIDIA's matrix instructions for a wave of 32 lanes, from the description of PTX (mma.m16n8k16, ldmatrix); and AMD's
// for one of 64, from what its matrix instruction calculator prints for them.
#include <cstdint>
#include <span>

#include "vendor/device_language.h"

namespace emulator {

// Row i of the four matrices is in lane i; with kTransposed, lane i gets of column i / 4 what it else gets of row i
// / 4.
template <bool kTransposed>
inline void deal_matrices(std::span<const uint4> rows, std::span<uint4> out) {
  const auto element = [&](int matrix, int row, int column) -> uint32_t {
    uint32_t words[4];
    __builtin_memcpy(words, &rows[static_cast<size_t>(matrix * 8 + row)], sizeof words);
    return words[column / 2] >> (column % 2 * 16) & 0xffffu;
  };
  for (int lane = 0; lane < 32; ++lane) {
    uint32_t words[4];
    for (int matrix = 0; matrix < 4; ++matrix) {
      const int line = lane / 4, first = lane % 4 * 2;
      words[matrix] = kTransposed ? element(matrix, first, line) | element(matrix, first + 1, line) << 16
                                  : element(matrix, line, first) | element(matrix, line, first + 1) << 16;
    }
    out[static_cast<size_t>(lane)] = {words[0], words[1], words[2], words[3]};
  }
}

// A lane's part of c[16, 8] += a[16, 16] * b[16, 8].
struct ProductIn {
  float c[4];
  uint32_t a[4], b[2];
};
void multiply_f16(std::span<const ProductIn> in, std::span<float4> out);
void multiply_bf16(std::span<const ProductIn> in, std::span<float4> out);

// A lane's part of d[16, 16] += a[16, k] * b[k, 16], k = 16 with elements of 16 bits and 32 with those of 8.
struct WideProductIn {
  float d[4];
  uint32_t a[2], b[2];
};
void multiply_wide_f16(std::span<const WideProductIn> in, std::span<float4> out);
void multiply_wide_bf16(std::span<const WideProductIn> in, std::span<float4> out);
// a of fnuz e4m3 or of fnuz e5m2, b of fnuz e4m3.
void multiply_wide_fp8(std::span<const WideProductIn> in, std::span<float4> out);
void multiply_wide_bf8(std::span<const WideProductIn> in, std::span<float4> out);

float of_fnuz_e4m3(uint32_t byte);
// Rounds to nearest even; what is too large becomes NaN.
uint32_t to_fnuz_e4m3(float value);

}  // namespace emulator
