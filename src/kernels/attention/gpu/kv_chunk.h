#pragma once
// 16 keys of a KV head on their way to shared memory. Included by GPU sources only, and by those outside of HIP.
#include "kernels/attention/gpu/mma.h"
#include "tensor/paged_kv.h"

#if !defined(__HIP_PLATFORM_AMD__)

namespace quire::gpu {

// kDims: of K and V, in 16-bit elements. From the plain layout both lie by keys, pack p (16 bytes) of key i at p ^ (i %
// 8), so that matrices of any 8 neighbouring keys can be read at once. From the shuffle layout they lie as they come: K
// as packs of 8 dimensions [kDims / 8, 16], V as packs of 8 keys [2, kDims]. Addresses in shared memory are multiples
// of 256: the pack's number can be changed by an exclusive or, without a register for each.
template <int kDims, bool kShuffled>
struct KvChunk {
  static constexpr int32_t kKeys = 16, kRowBytes = kDims * 2, kBytes = kKeys * kRowBytes;  // of K, and of V

  // By one wave. `slot` in `block` is that of the first key; keys from the `keys`-th on become 0.
  __device__ static void copy(const PagedKv& kv, int64_t block, int32_t slot, int32_t head, int32_t keys, uint32_t k_to,
                              uint32_t v_to) {
    const auto lane = static_cast<int32_t>(threadIdx.x) % kWave;
    const auto* const k = static_cast<const char*>(kv.k);
    const auto* const v = static_cast<const char*>(kv.v);
    constexpr int32_t kPacks = kDims / 8;
    if constexpr (kShuffled) {
      const int64_t page = (block * kv.kv_heads + head) * kv.block_size * kRowBytes;
      const int32_t key = lane % kKeys;
#pragma unroll
      for (int i = 0; i < kPacks / 2; ++i) {
        const int32_t pack = lane / kKeys + 2 * i;
        copy_async(k_to + (pack * kKeys + key) * 16, k + page + (pack * kv.block_size + slot + key) * 16,
                   key < keys ? 16 : 0);
      }
#pragma unroll
      for (int i = 0; i < kDims * 2 / kWave; ++i) {
        const int32_t pack = lane + kWave * i, there = keys - pack / kDims * 8;
        copy_async(v_to + pack * 16, v + page + static_cast<int64_t>(slot / 8 * kDims + pack) * 16,
                   2 * min(8, max(0, there)));
      }
    } else {
      constexpr int32_t kAtOnce = kWave / kPacks;  // keys
      const int32_t pack = lane % kPacks, first_to = lane / kPacks * kRowBytes + (pack ^ (lane / kPacks)) * 16;
      const int64_t stride = int64_t{kv.kv_heads} * kRowBytes;
      const int64_t at = (block * kv.block_size + slot + lane / kPacks) * stride + head * kRowBytes + pack * 16;
#pragma unroll
      for (int i = 0; i < kKeys / kAtOnce; ++i) {
        // The place of the pack for key lane / kPacks and that of key i * kAtOnce differ in other bits.
        const int32_t key = lane / kPacks + kAtOnce * i;
        const int32_t offset = (first_to ^ (kAtOnce * i % 8 * 16)) + kAtOnce * i * kRowBytes;
        const int64_t from = at + kAtOnce * i * stride;
        copy_async(k_to + offset, k + from, key < keys ? 16 : 0);
        copy_async(v_to + offset, v + from, key < keys ? 16 : 0);
      }
    }
  }

  // Fragments b of gpu/matrix_instructions.h over dimensions 16 * step ... + 15 for keys 0..7 (the first two)
  // and 8..15.
  __device__ static void load_k(uint32_t (&to)[4], uint32_t k, int32_t step) {
    const auto lane = static_cast<int32_t>(threadIdx.x) % kWave;
    const int32_t matrix = lane / 8, line = lane % 8;
    const int32_t key = matrix / 2 * 8 + line;
    if constexpr (kShuffled) {
      load_matrices<false>(to, k + (matrix % 2 * kKeys + key) * 16 + step * 2 * kKeys * 16);
    } else {
      load_matrices<false>(to, (k + key * kRowBytes + (matrix % 2 ^ line) * 16) ^ (step * 32));
    }
  }

  // Fragments b over the 16 keys for dimensions 16 * pair ... + 7 (the first two) and the 8 after them.
  __device__ static void load_v(uint32_t (&to)[4], uint32_t v, int32_t pair) {
    const auto lane = static_cast<int32_t>(threadIdx.x) % kWave;
    const int32_t matrix = lane / 8, line = lane % 8;
    if constexpr (kShuffled) {
      load_matrices<false>(to, v + (matrix % 2 * kDims + matrix / 2 * 8 + line) * 16 + pair * 256);
    } else {
      load_matrices<true>(to, (v + (matrix % 2 * 8 + line) * kRowBytes + (matrix / 2 ^ line) * 16) ^ (pair * 32));
    }
  }
};

// Maxima are those of scores * log2(e), -inf where there are none yet.
constexpr float kLog2E = 1.44269504f;
__device__ inline float finite(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

}  // namespace quire::gpu

#endif
