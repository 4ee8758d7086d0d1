// Extends and prefills on tensor cores. A block takes 128 states of one KV head (tile.h), or 64 where there are few,
// and goes over their keys in tiles of 64, of which the next is fetched while it works on one; a wave has a fourth of
// the states and all keys.
#include "gpu/numeric.h"
#include "gpu/shared_memory.h"
#include "gpu/wave.h"
#include "kernels/attention/gpu/attention.h"
#include "kernels/attention/gpu/kv_chunk.h"
#include "kernels/attention/gpu/parts.h"
#include "kernels/attention/gpu/rows.h"
#include "kernels/attention/gpu/tile.h"

namespace quire::gpu {

#if defined(__HIP_PLATFORM_AMD__)

bool attention_extend_fits(const AttentionArgs&) { return false; }
void launch_extend(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts, bool,
                   Stream& stream) {
  launch_general(args, requests, parts, false, stream);
}

#else

namespace {

constexpr int32_t kWaves = 4, kThreads = kWaves * kWave, kKeys = 64;

// kSmall: 64 states, and all kinds of AttentionParts; the larger tile has no registers to spare and is for kWhole.
template <class T, int kDims, bool kShuffled, bool kSmall>
struct ExtendShape {
  using Chunk = KvChunk<kDims, kShuffled>;
  static constexpr int32_t kBands = kSmall ? 1 : 2;  // of a wave's states: as many as a product has rows
  static constexpr int32_t kWaveStates = kBands * 16, kStates = kWaves * kWaveStates;
  static_assert(kStates == (kSmall ? kSmallExtendStates : kExtendStates));
  static constexpr int32_t kChunks = kKeys / Chunk::kKeys;
  static constexpr int32_t kQueryBytes = kStates * Chunk::kRowBytes, kPlaneBytes = kChunks * Chunk::kBytes;
  static constexpr int32_t kSharedBytes = kQueryBytes + 2 * 2 * kPlaneBytes;
  static_assert(kChunks == kWaves);  // each wave fetches 16 keys
};

// How q and out can be reached.
struct ExtendAccess {
  bool whole_queries, even_queries, whole_out;  // by 16 bytes, by 4, by 16 in the type of q
};

template <class T, int kDims, bool kShuffled, bool kSmall>
__global__ void __launch_bounds__(kThreads, 2)
    extend(AttentionArgs args, AttentionRequests requests, AttentionParts parts, ExtendAccess access) {
  using Shape = ExtendShape<T, kDims, kShuffled, kSmall>;
  using Chunk = typename Shape::Chunk;
  constexpr int32_t kBands = Shape::kBands, kWaveStates = Shape::kWaveStates, kStates = Shape::kStates;
  constexpr int32_t kRowBytes = Chunk::kRowBytes, kPacks = kDims / 8, kSteps = kDims / 16, kKeyTiles = kKeys / 8;
  const PagedKv& kv = args.kv;
  const int32_t share = args.heads / kv.kv_heads, kv_head = static_cast<int32_t>(blockIdx.x) % kv.kv_heads;
  const auto slots = static_cast<int32_t>(gridDim.x) / kv.kv_heads;
  AttentionTile tile;
  // The last tiles see the most keys and start first.
  if (!find_tile<kStates>(requests, share, slots - 1 - static_cast<int32_t>(blockIdx.x) / kv.kv_heads, tile)) return;

  const auto thread = static_cast<int32_t>(threadIdx.x), lane = thread % kWave, wave = thread / kWave;
  const auto row_of = [&](int32_t state) { return int64_t{tile.first_row + tile.row(state, share)}; };
  const auto head_of = [&](int32_t state) { return kv_head * share + (tile.first_state + state) % share; };
  const auto part = static_cast<int32_t>(blockIdx.y);
  const auto place_of = [&](int32_t state) {
    return state_place(parts, args, requests, part, row_of(state) - requests.query_offsets[0], head_of(state));
  };
  if (tile.kv_len == 0) {
    if constexpr (kSmall) {
      if (parts.kind == AttentionParts::Kind::kRound) return;
      if (parts.kind == AttentionParts::Kind::kSplit) {
        if (thread < tile.states) *place_of(thread).numbers = make_float2(-INFINITY, 0.0f);
        return;
      }
    }
    for (int32_t i = thread; i < tile.states * kDims; i += kThreads) {
      const int32_t state = i / kDims;
      store_as(args.out.data, args.out.dtype,
               row_of(state) * args.out.row_stride + head_of(state) * args.out.head_stride + i % kDims, 0.0f);
    }
    return;
  }

  auto* const memory = dynamic_shared_memory<char>();
  const uint32_t queries = shared_address(memory), planes = queries + Shape::kQueryBytes;
  // Stage s has K at planes + 2 s kPlaneBytes and V behind it.
  if constexpr (!kSmall) parts = {};
  const PartKeys range = part_keys<kKeys>(args, requests, parts, tile, share, part);
  if (range.none) return;
  const int32_t begin = range.begin, end = range.end;
  const auto block_of = [&](int32_t first) -> int32_t {
    const int32_t key = first + wave * Chunk::kKeys;
    return key < end && key + Chunk::kKeys > begin ? static_cast<int32_t>(range.block(key, kv.block_size)) : 0;
  };
  const auto fetch = [&](int32_t first, int32_t block, int32_t stage) {
    const int32_t key = first + wave * Chunk::kKeys;
    const bool seen = key < end && key + Chunk::kKeys > begin;
    const uint32_t to = planes + stage * 2 * Shape::kPlaneBytes + wave * Chunk::kBytes;
    Chunk::copy(kv, block, seen ? key % kv.block_size : 0, kv_head, seen ? end - key : 0, to, to + Shape::kPlaneBytes);
  };

  int32_t first = range.first;
  fetch(first, block_of(first), 0);
  int32_t next_block = block_of(first + kKeys);
  for (int32_t i = thread; i < kStates * kPacks; i += kThreads) {
    const int32_t state = i / kPacks, pack = i % kPacks;
    const uint32_t offset = state * kRowBytes + (pack ^ (state & 7)) * 16;
    const bool there = state < tile.states;
    const int32_t from_state = there ? state : 0;
    const auto* const from = static_cast<const uint16_t*>(args.q.data) + row_of(from_state) * args.q.row_stride +
                             head_of(from_state) * args.q.head_stride + pack * 8;
    if (access.whole_queries) {
      copy_async(queries + offset, from, there ? 16 : 0);
    } else {
      uint4 value = make_uint4(0, 0, 0, 0);
      if (there) {
        value.x = load_pair(from, access.even_queries);
        value.y = load_pair(from + 2, access.even_queries);
        value.z = load_pair(from + 4, access.even_queries);
        value.w = load_pair(from + 6, access.even_queries);
      }
      *reinterpret_cast<uint4*>(memory + offset) = value;
    }
  }
  commit_copies();

  // Each thread has rows lane / 4 and 8 more of each band of its wave's states.
  float totals[kBands][kDims / 8][4] = {};
  float maxima[kBands][2], sums[kBands][2];
#pragma unroll
  for (int band = 0; band < kBands; ++band) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      maxima[band][half] = -INFINITY;
      sums[band][half] = 0.0f;
    }
  }
  const bool changed = args.soft_cap > 0.0f || args.alibi_slopes != nullptr;
  // Scores become exponents of 2 by this factor, at the latest.
  const float factor = changed ? 1.0f : args.scale * kLog2E;
  if constexpr (kSmall) {
    if (!range.fresh) {
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int32_t state = wave * kWaveStates + band * 16 + half * 8 + lane / 4;
          if (state >= tile.states) continue;
          const StatePlace place = place_of(state);
          const float2 numbers = *place.numbers;
          maxima[band][half] = numbers.x / factor;
          sums[band][half] = lane % 4 == 0 ? numbers.y : 0.0f;
#pragma unroll
          for (int dims = 0; dims < kDims / 8; ++dims) {
            const float2 pair = *reinterpret_cast<const float2*>(place.totals + dims * 8 + lane % 4 * 2);
            totals[band][dims][2 * half] = pair.x;
            totals[band][dims][2 * half + 1] = pair.y;
          }
        }
      }
    }
  }
  // Keys in [all_see_from, all_see_to) are seen by every state of the tile.
  int32_t all_see_to = tile.position(0, share) + 1,
          all_see_from = oldest_key(tile.position(tile.states - 1, share), args.window);
  if constexpr (kSmall) {
    all_see_to = min(all_see_to, end);
    all_see_from = max(all_see_from, begin);
  }
  // The newest key that the wave's states see, -1 if it has none.
  const int32_t my_states = min(tile.states - wave * kWaveStates, kWaveStates);
  const int32_t my_last = my_states > 0 ? tile.position(wave * kWaveStates + my_states - 1, share) : -1;
  const int32_t line = lane % 8, matrix = lane / 8;
  const uint32_t my_queries =
      queries + (wave * kWaveStates + matrix % 2 * 8 + line) * kRowBytes + (matrix / 2 ^ line) * 16;

  for (int32_t stage = 0; first < range.stop; first += kKeys, stage ^= 1) {
    wait_for_copies<0>();
    __syncthreads();
    if (first + kKeys < range.stop) {
      fetch(first + kKeys, next_block, stage ^ 1);
      next_block = block_of(first + 2 * kKeys);
    }
    commit_copies();

    if (first > my_last) continue;
    const uint32_t k = planes + stage * 2 * Shape::kPlaneBytes, v = k + Shape::kPlaneBytes;
    float scores[kBands][kKeyTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t q[kBands][4];
#pragma unroll
      for (int band = 0; band < kBands; ++band)
        load_matrices<false>(q[band], (my_queries + band * 16 * kRowBytes) ^ (step * 32));
#pragma unroll
      for (int chunk = 0; chunk < Shape::kChunks; ++chunk) {
        uint32_t b[4];
        Chunk::load_k(b, k + chunk * Chunk::kBytes, step);
#pragma unroll
        for (int band = 0; band < kBands; ++band) {
          multiply(T{}, scores[band][2 * chunk], q[band], b[0], b[1]);
          multiply(T{}, scores[band][2 * chunk + 1], q[band], b[2], b[3]);
        }
      }
    }

    if (changed) {
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int32_t state = wave * kWaveStates + band * 16 + i / 2 * 8 + lane / 4;
          const float slope = args.alibi_slopes != nullptr ? args.alibi_slopes[head_of(state)] : 0.0f;
          const int32_t distance = first + lane % 4 * 2 + i % 2 - tile.position(state, share);
#pragma unroll
          for (int key = 0; key < kKeyTiles; ++key) {
            float score = scores[band][key][i] * args.scale;
            if (args.soft_cap > 0.0f) score = args.soft_cap * tanh_fast(__fdividef(score, args.soft_cap));
            scores[band][key][i] = kLog2E * fmaf(slope, static_cast<float>(distance + key * 8), score);
          }
        }
      }
    }
    if (first + kKeys > all_see_to || first < all_see_from) {
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int32_t newest = tile.position(wave * kWaveStates + band * 16 + i / 2 * 8 + lane / 4, share);
          const int32_t oldest = oldest_key(newest, args.window);
#pragma unroll
          for (int key = 0; key < kKeyTiles; ++key) {
            const int32_t at = first + key * 8 + lane % 4 * 2 + i % 2;
            if (at > newest || at < oldest) scores[band][key][i] = -INFINITY;
            if (kSmall && (at < begin || at >= end)) scores[band][key][i] = -INFINITY;
          }
        }
      }
    }

#pragma unroll
    for (int band = 0; band < kBands; ++band) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = scores[band][0][2 * half];
#pragma unroll
        for (int key = 0; key < kKeyTiles; ++key)
          largest = fmaxf(largest, fmaxf(scores[band][key][2 * half], scores[band][key][2 * half + 1]));
        largest = fmaxf(maxima[band][half], wave_max<4>(largest));
        const float base = finite(largest) * factor;
        const float shrink = exp2_fast(fmaf(maxima[band][half], factor, -base));
        maxima[band][half] = largest;
        float sum = 0.0f;
#pragma unroll
        for (int key = 0; key < kKeyTiles; ++key) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores[band][key][i] = exp2_fast(fmaf(scores[band][key][i], factor, -base));
            sum += scores[band][key][i];
          }
        }
        sums[band][half] = fmaf(sums[band][half], shrink, sum);
#pragma unroll
        for (int dims = 0; dims < kDims / 8; ++dims) {
          totals[band][dims][2 * half] *= shrink;
          totals[band][dims][2 * half + 1] *= shrink;
        }
      }
    }

#pragma unroll
    for (int chunk = 0; chunk < Shape::kChunks; ++chunk) {
      uint32_t weights[kBands][4];
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&pair)[4] = scores[band][2 * chunk + i / 2];
          weights[band][i] = pack_pair(T{}, pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int pair = 0; pair < kSteps; ++pair) {
        uint32_t b[4];
        Chunk::load_v(b, v + chunk * Chunk::kBytes, pair);
#pragma unroll
        for (int band = 0; band < kBands; ++band) {
          multiply(T{}, totals[band][2 * pair], weights[band], b[0], b[1]);
          multiply(T{}, totals[band][2 * pair + 1], weights[band], b[2], b[3]);
        }
      }
    }
  }
  wait_for_copies<0>();

  if constexpr (kSmall) {
    if (!range.finish) {
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int32_t state = wave * kWaveStates + band * 16 + half * 8 + lane / 4;
          const float sum = wave_sum<4>(sums[band][half]);
          if (state >= tile.states) continue;
          const StatePlace place = place_of(state);
          if (lane % 4 == 0) *place.numbers = make_float2(maxima[band][half] * factor, sum);
#pragma unroll
          for (int dims = 0; dims < kDims / 8; ++dims) {
            *reinterpret_cast<float2*>(place.totals + dims * 8 + lane % 4 * 2) =
                make_float2(totals[band][dims][2 * half], totals[band][dims][2 * half + 1]);
          }
        }
      }
      return;
    }
  }
#pragma unroll
  for (int band = 0; band < kBands; ++band) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t state = wave * kWaveStates + band * 16 + half * 8 + lane / 4;
      float sum = wave_sum<4>(sums[band][half]), scale = 1.0f;
      if (args.sinks != nullptr) {
        const float sink = args.sinks[head_of(state)] * kLog2E, maximum = maxima[band][half] * factor;
        const float largest = finite(fmaxf(maximum, sink));
        scale = exp2_fast(maximum - largest);
        sum = sum * scale + exp2_fast(sink - largest);
      }
      scale /= sum;
      if (access.whole_out) {
        // By way of the wave's own queries, to whole lines.
#pragma unroll
        for (int dims = 0; dims < kDims / 8; ++dims) {
          *reinterpret_cast<uint32_t*>(memory + state * kRowBytes + (dims ^ (state & 7)) * 16 + lane % 4 * 4) =
              pack_pair(T{}, totals[band][dims][2 * half] * scale, totals[band][dims][2 * half + 1] * scale);
        }
      } else if (state < tile.states) {
        const int64_t at = row_of(state) * args.out.row_stride + head_of(state) * args.out.head_stride + lane % 4 * 2;
#pragma unroll
        for (int dims = 0; dims < kDims / 8; ++dims) {
          store_as(args.out.data, args.out.dtype, at + dims * 8, totals[band][dims][2 * half] * scale);
          store_as(args.out.data, args.out.dtype, at + dims * 8 + 1, totals[band][dims][2 * half + 1] * scale);
        }
      }
    }
  }
  if (!access.whole_out) return;
  __syncwarp();
  for (int32_t i = lane; i < kWaveStates * kPacks; i += kWave) {
    const int32_t state = wave * kWaveStates + i / kPacks, pack = i % kPacks;
    if (state >= tile.states) continue;
    auto* const to = static_cast<uint16_t*>(args.out.data) + row_of(state) * args.out.row_stride +
                     head_of(state) * args.out.head_stride + pack * 8;
    *reinterpret_cast<uint4*>(to) =
        *reinterpret_cast<const uint4*>(memory + state * kRowBytes + (pack ^ (state & 7)) * 16);
  }
}

template <class T, int kDims, bool kShuffled, bool kSmall>
void launch_shape(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                  Stream& stream) {
  using Shape = ExtendShape<T, kDims, kShuffled, kSmall>;
  constexpr size_t kShared = Shape::kSharedBytes;
  allow_shared_memory(extend<T, kDims, kShuffled, kSmall>, kShared);
  const int32_t slots = tile_slots<Shape::kStates>(requests, args.heads / args.kv.kv_heads);
  const ConstHeadRows& q = args.q;
  const HeadRows& out = args.out;
  const ExtendAccess access{
      rows_aligned(q.data, q.row_stride, q.head_stride, q.dtype, 8),
      rows_aligned(q.data, q.row_stride, q.head_stride, q.dtype, 2),
      out.dtype == q.dtype && rows_aligned(out.data, out.row_stride, out.head_stride, out.dtype, 8)};
  const dim3 grid(static_cast<unsigned>(slots * args.kv.kv_heads), static_cast<unsigned>(parts.count));
  launch(stream, extend<T, kDims, kShuffled, kSmall>, grid, dim3(kThreads), kShared, args, requests, parts, access);
}

template <class T, int kDims>
void launch_dims(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts, bool small,
                 Stream& stream) {
  if (args.kv.layout == KvLayout::kShuffle) {
    (small ? launch_shape<T, kDims, true, true> : launch_shape<T, kDims, true, false>)(args, requests, parts, stream);
  } else {
    (small ? launch_shape<T, kDims, false, true> : launch_shape<T, kDims, false, false>)(args, requests, parts, stream);
  }
}

}  // namespace

bool attention_extend_fits(const AttentionArgs& args) { return attention_decode_fits(args) && args.scale > 0.0f; }

void launch_extend(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                   bool small, Stream& stream) {
  small = small || parts.kind != AttentionParts::Kind::kWhole;
  if (args.kv.dtype == DType::kF16) {
    (args.kv.head_dim == 64 ? launch_dims<F16, 64> : launch_dims<F16, 128>)(args, requests, parts, small, stream);
  } else {
    (args.kv.head_dim == 64 ? launch_dims<BF16, 64> : launch_dims<BF16, 128>)(args, requests, parts, small, stream);
  }
}

#endif

}  // namespace quire::gpu
