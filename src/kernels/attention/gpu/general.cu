// Attention for every shape: f32 arithmetic, K and V converted to f32 in shared memory, one block for a tile of states
// of one KV head. Tiles of keys lie at absolute positions and a tile without keys of a row leaves that row as it is, so
// a row's bits depend on its keys only.
#include <type_traits>

#include "gpu/numeric.h"
#include "gpu/shared_memory.h"
#include "gpu/wave.h"
#include "kernels/attention/gpu/attention.h"
#include "kernels/attention/gpu/parts.h"
#include "kernels/attention/gpu/rows.h"
#include "kernels/attention/gpu/tile.h"

namespace quire::gpu {
namespace {

constexpr int kThreads = 128, kKeys = 32;
constexpr float kLog2E = 1.44269504f;
constexpr int kGroups = kThreads / kKeys;  // threads that share a key split the states
constexpr int kPad = 4;                    // floats after a row of K, so that neighbouring keys lie in different banks

// The elements that one load takes: all layouts keep so many together.
template <class Kv>
struct alignas(sizeof(Kv) == 4 ? 16 : 8 * sizeof(Kv)) Pack {
  static constexpr int kSize = sizeof(Kv) == 4 ? 4 : 8;
  Kv elements[kSize];
};

#if defined(__HIP_PLATFORM_AMD__)
template <class Kv>
constexpr bool kUnpacksPairs = false;
#else
template <class Kv>
constexpr bool kUnpacksPairs = std::is_same_v<Kv, F8E4M3> || std::is_same_v<Kv, F8E5M2>;

// Two at once, by an instruction where there is one.
template <class Kv>
__device__ inline float2 unpack_pair(Kv low, Kv high) {
  const auto pair = static_cast<__nv_fp8x2_storage_t>(low.bits | high.bits << 8);
  constexpr auto kKind = std::is_same_v<Kv, F8E4M3> ? __NV_E4M3 : __NV_E5M2;
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, kKind)));
}
#endif

template <class Kv, int kSize>
__device__ inline void unpack(const Pack<Kv>& pack, float (&values)[kSize]) {
#pragma unroll
  for (int n = 0; n < kSize; n += 2) {
    if constexpr (kUnpacksPairs<Kv>) {
      const float2 pair = unpack_pair(pack.elements[n], pack.elements[n + 1]);
      values[n] = pair.x;
      values[n + 1] = pair.y;
    } else {
      values[n] = to_float(pack.elements[n]);
      values[n + 1] = to_float(pack.elements[n + 1]);
    }
  }
}

__device__ inline float scale_of(const PagedKv& kv, const float* scales, int64_t block, int32_t slot, int32_t head) {
  switch (kv.scaling) {
    case KvScaling::kNone:
      return 1.0f;
    case KvScaling::kTensor:
      return scales[0];
    case KvScaling::kHead:
      return scales[head];
    default:
      return scales[(block * kv.kv_heads + head) * kv.block_size + slot];
  }
}

struct DimRange {
  int32_t begin, end;
};

// Keys of one request and KV head, [begin, end) of which the tile may read; others count as 0.
template <class Kv>
struct KeyTiles {
  const PagedKv& kv;
  const PartKeys& keys;
  int32_t head, begin, end;

  static constexpr int kPack = Pack<Kv>::kSize;
  static constexpr int32_t kX = 16 / sizeof(Kv);

  // Dimensions `dims` of K of keys first ... first + kKeys - 1 to rows of `stride` floats.
  __device__ void load_k(int32_t first, DimRange dims, float* rows, int32_t stride) const {
    if (kv.layout == KvLayout::kPlain) {
      load_plain(kv.k, kv.k_scales, kv.head_dim, first, dims, rows, stride);
    } else {
      load_shuffled_k(first, dims, rows, stride);
    }
  }

  // V likewise.
  __device__ void load_v(int32_t first, DimRange dims, float* rows, int32_t stride) const {
    if (kv.layout == KvLayout::kPlain) {
      load_plain(kv.v, kv.v_scales, kv.v_head_dim, first, dims, rows, stride);
    } else {
      load_shuffled_v(first, dims, rows, stride);
    }
  }

  __device__ static void store(const float (&values)[kPack], float scale, float* to) {
#pragma unroll
    for (int n = 0; n < kPack; n += 4) {
      *reinterpret_cast<float4*>(to + n) =
          make_float4(values[n] * scale, values[n + 1] * scale, values[n + 2] * scale, values[n + 3] * scale);
    }
  }

  // Neighbouring threads take neighbouring packs of a key.
  __device__ void load_plain(const void* plane, const float* scales, int32_t head_dims, int32_t first, DimRange dims,
                             float* rows, int32_t stride) const {
    const int32_t packs = (dims.end - dims.begin) / kPack;
    for (int32_t i = threadIdx.x; i < packs * kKeys; i += kThreads) {
      const int32_t row = i / packs, dim = i % packs * kPack, key = first + row;
      float values[kPack] = {}, scale = 0.0f;
      if (key >= begin && key < end) {
        const int64_t block = keys.block(key, kv.block_size);
        const int32_t slot = key % kv.block_size;
        const int64_t at = ((block * kv.block_size + slot) * kv.kv_heads + head) * head_dims + dims.begin + dim;
        unpack(*reinterpret_cast<const Pack<Kv>*>(static_cast<const Kv*>(plane) + at), values);
        scale = scale_of(kv, scales, block, slot, head);
      }
      store(values, scale, rows + row * stride + dim);
    }
  }

  // Neighbouring threads take the same pack of neighbouring keys.
  __device__ void load_shuffled_k(int32_t first, DimRange dims, float* rows, int32_t stride) const {
    const int32_t row = static_cast<int32_t>(threadIdx.x) % kKeys, key = first + row;
    const bool seen = key >= begin && key < end;
    const Kv* from = nullptr;
    float scale = 0.0f;
    if (seen) {
      const int64_t block = keys.block(key, kv.block_size);
      const int32_t slot = key % kv.block_size, packs = (kv.head_dim + kX - 1) / kX;
      from = static_cast<const Kv*>(kv.k) + ((block * kv.kv_heads + head) * packs * kv.block_size + slot) * kX;
      scale = scale_of(kv, kv.k_scales, block, slot, head);
    }
#pragma unroll 4
    for (int32_t dim = dims.begin + static_cast<int32_t>(threadIdx.x) / kKeys * kPack; dim < dims.end;
         dim += kGroups * kPack) {
      float values[kPack] = {};
      if (seen) unpack(*reinterpret_cast<const Pack<Kv>*>(from + dim / kX * kv.block_size * kX + dim % kX), values);
      store(values, scale, rows + row * stride + dim - dims.begin);
    }
  }

  // Here a pack is kPack keys of one dimension.
  __device__ void load_shuffled_v(int32_t first, DimRange dims, float* rows, int32_t stride) const {
    for (int32_t row = 0; row < kKeys; row += kPack) {
      const int32_t key = first + row;
      const bool seen = key + kPack > begin && key < end;
      const Kv* from = nullptr;
      float scales[kPack] = {};  // 0 for keys that aren't seen
      if (seen) {
        const int64_t block = keys.block(key, kv.block_size);
        const int32_t slot = key % kv.block_size;
        const int64_t packs = (block * kv.kv_heads + head) * (kv.block_size / kX) + slot / kX;
        from = static_cast<const Kv*>(kv.v) + packs * kv.v_head_dim * kX + slot % kX;
#pragma unroll
        for (int n = 0; n < kPack; ++n) {
          if (key + n >= begin && key + n < end) scales[n] = scale_of(kv, kv.v_scales, block, slot + n, head);
        }
      }
      for (int32_t dim = dims.begin + static_cast<int32_t>(threadIdx.x); dim < dims.end; dim += kThreads) {
        float values[kPack] = {};
        if (seen) unpack(*reinterpret_cast<const Pack<Kv>*>(from + dim * kX), values);
#pragma unroll
        for (int n = 0; n < kPack; ++n) {
          // What lies in the slots of other keys may be no number.
          rows[(row + n) * stride + dim - dims.begin] =
              key + n >= begin && key + n < end ? values[n] * scales[n] : 0.0f;
        }
      }
    }
  }
};

// Floats of shared memory: queries, a tile of K and one of V, weights, and a number a state. If that is too much, K and
// V take turns in the same place, and if that still is, pieces of so many dimensions of them.
template <int kStates>
__host__ __device__ bool keeps_both(const PagedKv& kv) {
  constexpr int32_t kRoom = 12 * 1024;
  return kStates * kv.head_dim + kKeys * (kv.head_dim + kv.v_head_dim + 2 * kPad) + kStates * (kKeys + 2) <= kRoom;
}
template <int kStates>
__host__ __device__ int32_t dims_at_once(const PagedKv& kv) {
  constexpr int32_t kMostFloats = (kPortableIsBest ? 64 : 227) * 256;
  static_assert(kMostFloats >= kStates * kMaxHeadDim + kStates * (kKeys + 2) + kKeys * (kThreads + kPad));
  const int32_t most = max(kv.head_dim, kv.v_head_dim);
  const int32_t room = (kMostFloats - kStates * (kv.head_dim + kKeys + 2)) / kKeys - kPad;
  return most <= room ? most : room / kThreads * kThreads;
}
template <int kStates>
size_t shared_floats(const PagedKv& kv) {
  const int32_t tiles =
      keeps_both<kStates>(kv) ? kv.head_dim + kv.v_head_dim + 2 * kPad : dims_at_once<kStates>(kv) + kPad;
  return static_cast<size_t>(kStates * kv.head_dim + kKeys * tiles + kStates * (kKeys + 2));
}

// kSteps: dimensions of V that each thread owns, kThreads apart.
template <class Kv, int kSteps, int kStates>
__global__ void __launch_bounds__(kThreads)
    attend(AttentionArgs args, AttentionRequests requests, AttentionParts parts) {
  constexpr int kGroupStates = kStates / kGroups;
  const PagedKv& kv = args.kv;
  const int32_t share = args.heads / kv.kv_heads, head = static_cast<int32_t>(blockIdx.x) % kv.kv_heads;
  const auto slots = static_cast<int32_t>(gridDim.x) / kv.kv_heads;
  AttentionTile tile;
  // The last tiles see the most keys and start first.
  if (!find_tile<kStates>(requests, share, slots - 1 - static_cast<int32_t>(blockIdx.x) / kv.kv_heads, tile)) return;

  const auto out_at = [&](int32_t state, int32_t dim) {
    const int64_t row = tile.first_row + tile.row(state, share), h = head * share + (tile.first_state + state) % share;
    return row * args.out.row_stride + h * args.out.head_stride + dim;
  };
  const auto part = static_cast<int32_t>(blockIdx.y);
  // State of the launch's memory.
  const auto place_of = [&](int32_t state) {
    const int32_t row = tile.first_row - requests.query_offsets[0] + tile.row(state, share);
    return state_place(parts, args, requests, part, row, head * share + (tile.first_state + state) % share);
  };
  if (tile.kv_len == 0) {
    if (parts.kind == AttentionParts::Kind::kRound) return;
    if (parts.kind == AttentionParts::Kind::kSplit) {
      if (threadIdx.x < tile.states)
        *place_of(static_cast<int32_t>(threadIdx.x)).numbers = make_float2(-INFINITY, 0.0f);
      return;
    }
    for (int32_t i = threadIdx.x; i < tile.states * kv.v_head_dim; i += kThreads)
      store_as(args.out.data, args.out.dtype, out_at(i / kv.v_head_dim, i % kv.v_head_dim), 0.0f);
    return;
  }

  const PartKeys range = part_keys<kKeys>(args, requests, parts, tile, share, part);
  if (range.none) return;
  const int32_t dims = kv.head_dim;
  const bool both = keeps_both<kStates>(kv);
  const int32_t at_once = both ? kMaxHeadDim : dims_at_once<kStates>(kv);
  const int32_t k_stride = (both ? dims : at_once) + kPad, v_stride = (both ? kv.v_head_dim : at_once) + kPad;
  float* const queries = dynamic_shared_memory<float>();                          // [kStates, dims]
  float* const keys = queries + kStates * dims;                                   // [kKeys, k_stride]
  float* const values_of_keys = both ? keys + kKeys * k_stride : keys;            // [kKeys, v_stride]
  float* const weights = keys + kKeys * (both ? k_stride + v_stride : k_stride);  // [kStates, kKeys]
  float* const factors = weights + kStates * kKeys;                               // [kStates], of what is summed so far
  for (int32_t i = threadIdx.x; i < kStates * dims; i += kThreads) {
    const int32_t state = i / dims, dim = i % dims;
    float value = 0.0f;
    if (state < tile.states) {
      const int64_t row = tile.first_row + tile.row(state, share),
                    h = head * share + (tile.first_state + state) % share;
      value = args.scale * load_as(args.q.data, args.q.dtype, row * args.q.row_stride + h * args.q.head_stride + dim);
    }
    queries[i] = value;
  }

  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kKeys;
  const int32_t group_state = static_cast<int32_t>(threadIdx.x) / kKeys * kGroupStates;
  float maxima[kGroupStates], sums[kGroupStates];
#pragma unroll
  for (int i = 0; i < kGroupStates; ++i) {
    maxima[i] = -INFINITY;
    sums[i] = 0.0f;
  }
  float totals[kStates][kSteps] = {};
  if (!range.fresh) {
#pragma unroll
    for (int i = 0; i < kGroupStates; ++i) {
      if (group_state + i >= tile.states) continue;
      const float2 numbers = *place_of(group_state + i).numbers;
      maxima[i] = numbers.x * (1.0f / kLog2E);
      sums[i] = numbers.y;
    }
#pragma unroll
    for (int state = 0; state < kStates; ++state) {
      if (state >= tile.states) continue;
      const float* const from = place_of(state).totals;
#pragma unroll
      for (int j = 0; j < kSteps; ++j) {
        const int32_t dim = static_cast<int32_t>(threadIdx.x) + j * kThreads;
        if (dim < kv.v_head_dim) totals[state][j] = from[dim];
      }
    }
  }

  const KeyTiles<Kv> tiles{kv, range, head, range.begin, range.end};
  for (int32_t first = range.first; first < range.stop; first += kKeys) {
    float scores[kGroupStates] = {};
    for (DimRange piece{0, min(at_once, dims)}; piece.begin < dims;
         piece = {piece.end, min(piece.end + at_once, dims)}) {
      __syncthreads();  // the values before are used up; at first: the queries are there after the next one
      tiles.load_k(first, piece, keys, k_stride);
      if (both) tiles.load_v(first, {0, kv.v_head_dim}, values_of_keys, v_stride);
      __syncthreads();
      for (int32_t dim = piece.begin; dim < piece.end; dim += 4) {
        const float4 k = *reinterpret_cast<const float4*>(keys + lane * k_stride + dim - piece.begin);
#pragma unroll
        for (int i = 0; i < kGroupStates; ++i) {
          const float4 q = *reinterpret_cast<const float4*>(queries + (group_state + i) * dims + dim);
          scores[i] = fmaf(q.x, k.x, scores[i]);
          scores[i] = fmaf(q.y, k.y, scores[i]);
          scores[i] = fmaf(q.z, k.z, scores[i]);
          scores[i] = fmaf(q.w, k.w, scores[i]);
        }
      }
    }
    const int32_t key = first + lane;
#pragma unroll
    for (int i = 0; i < kGroupStates; ++i) {
      const int32_t state = group_state + i, position = tile.position(state, share);
      float score = scores[i];
      if (args.soft_cap > 0.0f) score = args.soft_cap * tanhf(score / args.soft_cap);
      if (args.alibi_slopes != nullptr) {
        score +=
            args.alibi_slopes[head * share + (tile.first_state + state) % share] * static_cast<float>(key - position);
      }
      if (key > position || key < oldest_key(position, args.window) || key < range.begin || key >= range.end ||
          state >= tile.states) {
        score = -INFINITY;
      }
      const float largest = fmaxf(maxima[i], wave_max<kKeys>(score));
      const float base = largest == -INFINITY ? 0.0f : largest;
      const float weight = __expf(score - base), factor = __expf(maxima[i] - base);
      maxima[i] = largest;
      sums[i] = sums[i] * factor + wave_sum<kKeys>(weight);
      weights[state * kKeys + lane] = weight;
      if (lane == 0) factors[state] = factor;
    }
    __syncthreads();
#pragma unroll
    for (int state = 0; state < kStates; ++state) {
      const float factor = factors[state];
#pragma unroll
      for (int j = 0; j < kSteps; ++j) totals[state][j] *= factor;
    }
    for (DimRange piece{0, min(at_once, kv.v_head_dim)}; piece.begin < kv.v_head_dim;
         piece = {piece.end, min(piece.end + at_once, kv.v_head_dim)}) {
      if (!both) {
        if (piece.begin > 0) __syncthreads();
        tiles.load_v(first, piece, values_of_keys, v_stride);
        __syncthreads();
      }
      for (int32_t k = 0; k < kKeys; k += 4) {
        float values[4][kSteps];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int j = 0; j < kSteps; ++j) {
            const int32_t dim = static_cast<int32_t>(threadIdx.x) + j * kThreads;
            values[n][j] =
                dim >= piece.begin && dim < piece.end ? values_of_keys[(k + n) * v_stride + dim - piece.begin] : 0.0f;
          }
        }
#pragma unroll
        for (int state = 0; state < kStates; ++state) {
          const float4 weight = *reinterpret_cast<const float4*>(weights + state * kKeys + k);
#pragma unroll
          for (int j = 0; j < kSteps; ++j) {
            totals[state][j] = fmaf(weight.x, values[0][j], totals[state][j]);
            totals[state][j] = fmaf(weight.y, values[1][j], totals[state][j]);
            totals[state][j] = fmaf(weight.z, values[2][j], totals[state][j]);
            totals[state][j] = fmaf(weight.w, values[3][j], totals[state][j]);
          }
        }
      }
    }
  }

  if (!range.finish) {
#pragma unroll
    for (int i = 0; i < kGroupStates; ++i) {
      if (lane == 0 && group_state + i < tile.states)
        *place_of(group_state + i).numbers = make_float2(maxima[i] * kLog2E, sums[i]);
    }
#pragma unroll
    for (int state = 0; state < kStates; ++state) {
      if (state >= tile.states) continue;
      float* const to = place_of(state).totals;
#pragma unroll
      for (int j = 0; j < kSteps; ++j) {
        const int32_t dim = static_cast<int32_t>(threadIdx.x) + j * kThreads;
        if (dim < kv.v_head_dim) to[dim] = totals[state][j];
      }
    }
    return;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kGroupStates; ++i) {
    const int32_t state = group_state + i;
    float factor = 1.0f, sum = sums[i];
    if (args.sinks != nullptr) {
      const float sink = args.sinks[head * share + (tile.first_state + state) % share];
      const float largest = fmaxf(maxima[i], sink);
      factor = __expf(maxima[i] - largest);
      sum = sum * factor + __expf(sink - largest);
    }
    if (lane == 0) factors[state] = factor / sum;
  }
  __syncthreads();
#pragma unroll
  for (int state = 0; state < kStates; ++state) {
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      const int32_t dim = static_cast<int32_t>(threadIdx.x) + j * kThreads;
      if (state < tile.states && dim < kv.v_head_dim)
        store_as(args.out.data, args.out.dtype, out_at(state, dim), totals[state][j] * factors[state]);
    }
  }
}

template <class Kv, int kSteps, int kStates>
void launch_tiles(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                  Stream& stream) {
  const size_t bytes = shared_floats<kStates>(args.kv) * sizeof(float);
  constexpr size_t kAlwaysAllowed = 48 * 1024;
  if (bytes > kAlwaysAllowed) allow_shared_memory(attend<Kv, kSteps, kStates>, bytes);
  const int32_t slots = tile_slots<kStates>(requests, args.heads / args.kv.kv_heads);
  const dim3 grid(static_cast<unsigned>(slots * args.kv.kv_heads), static_cast<unsigned>(parts.count));
  launch(stream, attend<Kv, kSteps, kStates>, grid, dim3(kThreads), bytes, args, requests, parts);
}

template <class Kv, int kSteps>
void launch_steps(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts, bool small,
                  Stream& stream) {
  (small ? launch_tiles<Kv, kSteps, kSmallGeneralStates> : launch_tiles<Kv, kSteps, kGeneralStates>)(args, requests,
                                                                                                     parts, stream);
}

}  // namespace

void launch_general(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                    bool small, Stream& stream) {
  with_kv_type(args.kv.dtype, [&](auto element) {
    using Kv = decltype(element);
    if (args.kv.v_head_dim <= kThreads) {
      launch_steps<Kv, 1>(args, requests, parts, small, stream);
    } else if (args.kv.v_head_dim <= 2 * kThreads) {
      launch_steps<Kv, 2>(args, requests, parts, small, stream);
    } else {
      launch_steps<Kv, 4>(args, requests, parts, small, stream);
    }
  });
}

}  // namespace quire::gpu
