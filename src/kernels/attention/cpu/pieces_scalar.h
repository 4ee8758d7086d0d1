#pragma once
// Transposes 16 pieces of 16 bytes; see kv_page.h. Also says how many vectors of 16 floats a product may accumulate at
// a time.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/simd/scalar.h"
#include "tensor/dtype.h"

namespace quire {

struct ScalarPieces {
  static constexpr int kAccumulators = 2;

  // Element e of piece i, which is at src + i * stride, becomes lane i of out[e].
  template <DType kDType>
  static void transpose(const std::byte* src, int64_t stride, ScalarIsa::F* out) {
    for (int64_t i = 0; i < 16; ++i) {
      if constexpr (kDType == DType::kF32) {
        float piece[4];
        std::memcpy(piece, src + i * stride, sizeof piece);
        for (int64_t e = 0; e < 4; ++e) out[e].v[i] = piece[e];
      } else {
        uint16_t piece[8];
        std::memcpy(piece, src + i * stride, sizeof piece);
        for (int64_t e = 0; e < 8; ++e) {
          out[e].v[i] = kDType == DType::kBF16 ? bf16_to_f32(piece[e]) : f16_to_f32(piece[e]);
        }
      }
    }
  }

  // The same for pieces that follow one another.
  template <DType kDType>
  static void transpose_packed(const std::byte* src, ScalarIsa::F* out) {
    transpose<kDType>(src, 16, out);
  }
};

}  // namespace quire
