#include "kernels/kv_write/kv_write.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention/attention.h"
#include "kernels/simd/vector_kernels.h"

namespace quire {
namespace {

float largest_of(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3:
      return 448.0f;
    case DType::kF8E5M2:
      return 57344.0f;
    default:
      return 127.0f;
  }
}

uint8_t to_8bit(DType dtype, float x) {
  switch (dtype) {
    case DType::kF8E4M3:
      return f32_to_f8e4m3(x);
    case DType::kF8E5M2:
      return f32_to_f8e5m2(x);
    default:
      // A NaN has no code; as 0 it would vanish, so it takes the largest.
      return static_cast<uint8_t>(
          static_cast<int8_t>(std::isnan(x) ? 127.0f : std::nearbyint(std::clamp(x, -127.0f, 127.0f))));
  }
}

// One head of one token on its way to the cache: floats in, the cache's type out.
class HeadWriter {
 public:
  HeadWriter(const PagedKv& kv, int64_t slot) : kv_(kv), block_(slot / kv.block_size), slot_(slot % kv.block_size) {}

  void write_k(int64_t head, const float* x) {
    const std::byte* row = convert(x, kv_.head_dim, head, kv_.k_scales);
    auto* plane = static_cast<std::byte*>(kv_.k);
    if (kv_.layout == KvLayout::kPlain) {
      std::memcpy(plane + PlainLayout::k(kv_, block_, slot_, head, 0) * element_, row,
                  static_cast<size_t>(kv_.head_dim * element_));
      return;
    }
    for (int64_t d = 0; d < kv_.head_dim; d += pack_)
      std::memcpy(plane + ShuffleLayout::k(kv_, block_, slot_, head, d) * element_, row + d * element_, 16);
  }

  void write_v(int64_t head, const float* x) {
    const std::byte* row = convert(x, kv_.v_head_dim, head, kv_.v_scales);
    auto* plane = static_cast<std::byte*>(kv_.v);
    if (kv_.layout == KvLayout::kPlain) {
      std::memcpy(plane + PlainLayout::v(kv_, block_, slot_, head, 0) * element_, row,
                  static_cast<size_t>(kv_.v_head_dim * element_));
      return;
    }
    std::byte* column = plane + ShuffleLayout::v(kv_, block_, slot_, head, 0) * element_;
    switch (element_) {
      case 4:
        return scatter<uint32_t>(row, column);
      case 2:
        return scatter<uint16_t>(row, column);
      default:
        return scatter<uint8_t>(row, column);
    }
  }

 private:
  // The row in the cache's type, zeros up to a whole pack.
  const std::byte* convert(const float* x, int64_t n, int64_t head, float* scales) {
    switch (kv_.dtype) {
      case DType::kF32:
        return reinterpret_cast<const std::byte*>(x);
      case DType::kF16:
        vector_kernels().to_f16(x, reinterpret_cast<uint16_t*>(row_), n);
        break;
      case DType::kBF16:
        vector_kernels().to_bf16(x, reinterpret_cast<uint16_t*>(row_), n);
        break;
      default:
        quantize(x, n, scales[scale_index(kv_, block_, slot_, head)]);
        std::fill(row_ + n, row_ + (n + 15) / 16 * 16, std::byte{0});
    }
    return row_;
  }

  // With a scale for each token and head, sets it; else takes it.
  void quantize(const float* x, int64_t n, float& scale) {
    if (kv_.scaling == KvScaling::kTokenHead) {
      float largest = 0.0f;
      // Once it is NaN it stays so: the head's sums must show it.
      for (int64_t d = 0; d < n; ++d) {
        if (!(std::fabs(x[d]) <= largest) && !std::isnan(largest)) largest = std::fabs(x[d]);
      }
      scale = largest / largest_of(kv_.dtype);
    }
    // A scale of 0, or one so small that its inverse is none: the head is as good as 0.
    const float inverse = std::isinf(1.0f / scale) ? 0.0f : 1.0f / scale;
    for (int64_t d = 0; d < n; ++d) row_[d] = static_cast<std::byte>(to_8bit(kv_.dtype, x[d] * inverse));
  }

  template <class T>
  void scatter(const std::byte* row, std::byte* column) const {
    auto* to = reinterpret_cast<T*>(column);
    const auto* from = reinterpret_cast<const T*>(row);
    for (int64_t d = 0; d < kv_.v_head_dim; ++d) to[d * pack_] = from[d];
  }

  const PagedKv& kv_;
  int64_t block_, slot_;
  int64_t element_ = block_bytes(kv_.dtype), pack_ = shuffle_pack(element_);
  alignas(64) std::byte row_[kMaxHeadDim * sizeof(uint16_t)];
};

// A head of x as floats: in place, or widened to `row`.
const float* head_of(const ConstHeadRows& x, int64_t row, int64_t head, int64_t n, float* widened) {
  const int64_t at = row * x.row_stride + head * x.head_stride;
  if (x.dtype == DType::kF32) return static_cast<const float*>(x.data) + at;
  dequantize(x.dtype, static_cast<const uint16_t*>(x.data) + at, widened, n);
  return widened;
}

int64_t cost(int64_t m, const PagedKv& kv) { return m * kv.kv_heads * (int64_t{kv.head_dim} + kv.v_head_dim); }

}  // namespace

void kv_write(const ConstHeadRows& k, const ConstHeadRows& v, const int64_t* slots, int64_t m, const PagedKv& kv,
              ThreadPool& pool) {
  pool.parallel_for_if_large(m, cost(m, kv), [&](int64_t begin, int64_t end, int) {
    float widened[kMaxHeadDim];
    for (int64_t i = begin; i < end; ++i) {
      if (slots[i] < 0) continue;
      HeadWriter writer(kv, slots[i]);
      for (int64_t h = 0; h < kv.kv_heads; ++h) {
        writer.write_k(h, head_of(k, i, h, kv.head_dim, widened));
        writer.write_v(h, head_of(v, i, h, kv.v_head_dim, widened));
      }
    }
  });
}

void rope_kv_write(float* q, int64_t ldq, int64_t heads, const float* k, int64_t ldk, const float* v, int64_t ldv,
                   const int64_t* slots, int64_t m, const float* cos, const float* sin, int64_t half, bool interleaved,
                   const PagedKv& kv, ThreadPool& pool) {
  const VectorKernels& kernels = vector_kernels();
  const auto rotate = interleaved ? kernels.rope_pairs : kernels.rope_halves;
  const int64_t head_dim = kv.head_dim;
  pool.parallel_for_if_large(m, cost(m, kv) + m * heads * half * 2, [&](int64_t begin, int64_t end, int) {
    float rotated[kMaxHeadDim];
    for (int64_t i = begin; i < end; ++i) {
      const float *c = cos + i * half, *s = sin + i * half;
      for (int64_t h = 0; h < heads; ++h) rotate(q + i * ldq + h * head_dim, c, s, half);
      if (slots[i] < 0) continue;
      HeadWriter writer(kv, slots[i]);
      for (int64_t h = 0; h < kv.kv_heads; ++h) {
        std::memcpy(rotated, k + i * ldk + h * head_dim, static_cast<size_t>(head_dim) * sizeof(float));
        rotate(rotated, c, s, half);
        writer.write_k(h, rotated);
        writer.write_v(h, v + i * ldv + h * kv.v_head_dim);
      }
    }
  });
}

void kv_copy_blocks(const PagedKv& kv, std::span<const BlockCopy> copies) {
  const auto copy = [&](void* plane, int64_t bytes) {
    auto* base = static_cast<std::byte*>(plane);
    for (const BlockCopy& c : copies)
      std::memcpy(base + c.destination * bytes, base + c.source * bytes, static_cast<size_t>(bytes));
  };
  copy(kv.k, k_block_bytes(kv));
  copy(kv.v, v_block_bytes(kv));
  const int64_t scale_bytes = block_scales(kv) * static_cast<int64_t>(sizeof(float));
  if (scale_bytes == 0) return;
  copy(kv.k_scales, scale_bytes);
  copy(kv.v_scales, scale_bytes);
}

void kv_reset_blocks(const PagedKv& kv, std::span<const int32_t> blocks) {
  const auto reset = [&](void* plane, int64_t bytes) {
    for (const int32_t block : blocks)
      std::memset(static_cast<std::byte*>(plane) + block * bytes, 0, static_cast<size_t>(bytes));
  };
  reset(kv.k, k_block_bytes(kv));
  reset(kv.v, v_block_bytes(kv));
  const int64_t scale_bytes = block_scales(kv) * static_cast<int64_t>(sizeof(float));
  if (scale_bytes == 0) return;
  reset(kv.k_scales, scale_bytes);
  reset(kv.v_scales, scale_bytes);
}

}  // namespace quire
