#include "kernels/kv_write/kv_write.h"

#include <cstring>
#include <stdexcept>

#include "kernels/simd/vector_kernels.h"

namespace quire {
namespace {

// One head's row in the cache's own type. A head never exceeds this many elements; the attention registry refuses
// larger ones.
constexpr int64_t kMaxHeadDim = 512;

template <class T, class Convert>
void write_row(const float* k, const float* v, int64_t slot, const PagedKv& kv, Convert convert) {
  const int64_t block = slot / kv.block_size, offset = slot % kv.block_size;
  auto* keys = static_cast<T*>(kv.k);
  auto* values = static_cast<T*>(kv.v);
  if (kv.layout == KvLayout::kPlain) {
    const int64_t at = PlainLayout::k(kv, block, offset, 0, 0), n = int64_t{kv.kv_heads} * kv.head_dim;
    convert(k, keys + at, n);
    convert(v, values + at, n);
    return;
  }
  constexpr auto kPack = shuffle_pack(sizeof(T));
  alignas(16) T row[kMaxHeadDim];
  for (int64_t head = 0; head < kv.kv_heads; ++head) {
    convert(k + head * kv.head_dim, row, kv.head_dim);
    for (int64_t d = 0; d < kv.head_dim; d += kPack)
      std::memcpy(keys + ShuffleLayout::k(kv, block, offset, head, d), row + d, 16);
    convert(v + head * kv.head_dim, row, kv.head_dim);
    T* column = values + ShuffleLayout::v(kv, block, offset, head, 0);
    for (int64_t d = 0; d < kv.head_dim; ++d) column[d * kPack] = row[d];
  }
}

}  // namespace

void kv_write(const float* k, int64_t ldk, const float* v, int64_t ldv, const int64_t* slots, int64_t m,
              const PagedKv& kv, ThreadPool& pool) {
  const VectorKernels& kernels = vector_kernels();
  pool.parallel_for_if_large(m, m * kv.kv_heads * kv.head_dim * 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      if (slots[i] < 0) continue;
      const float* key = k + i * ldk;
      const float* value = v + i * ldv;
      switch (kv.dtype) {
        case DType::kF32:
          write_row<float>(key, value, slots[i], kv, [](const float* src, float* dst, int64_t n) {
            std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
          });
          break;
        case DType::kF16:
          write_row<uint16_t>(key, value, slots[i], kv, kernels.to_f16);
          break;
        case DType::kBF16:
          write_row<uint16_t>(key, value, slots[i], kv, kernels.to_bf16);
          break;
        default:
          throw std::logic_error("kv_write: no such KV dtype");
      }
    }
  });
}

void kv_copy_block(const PagedKv& kv, int64_t source, int64_t destination) {
  const int64_t bytes = plane_bytes(kv) / kv.blocks;
  for (void* plane : {kv.k, kv.v}) {
    auto* base = static_cast<std::byte*>(plane);
    std::memcpy(base + destination * bytes, base + source * bytes, static_cast<size_t>(bytes));
  }
}

}  // namespace quire
