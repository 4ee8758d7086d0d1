#pragma once
// Attention by the products of gpu/matrix.h: the fast kernel with AMD, and the same on NVIDIA's cards for tests.
// Included by matrix_attention*.cu only.
//
// Scores are computed with keys as rows and states (tile.h) as columns, so that a lane has the weights of its states
// just as the product with V, dimensions as rows, wants them. Sixteen states are a band. Where a block has more states
// than those of one band its waves share them out, and the keys are fetched by the whole block; a block of one band
// (decodes) shares out the keys, 32 to a wave in turn, and the waves' results are merged in the end.
//
// 8-bit K and V. A scale of keys multiplies their scores, one of values their weights, in f32. V is widened to bf16,
// which is exact. So is K, to the type of q, except where the matrix unit multiplies bytes: there the floats of K enter
// it as they are, and q is cut into bytes instead: after a power of two has brought its largest magnitude into [64,
// 128), a term is what is left of q rounded to e4m3, four digits, and the next term has the rest. Two terms for bf16
// and three for f16 make q exactly; of elements smaller than the largest by 2^9 and more, what lies below 2^-17 of it
// is lost, which is less than a rounding of the largest one to bf16 by 2^8. (The same for the weights would not do:
// many small ones together may outweigh the largest.)
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "gpu/instructions.h"
#include "gpu/shared_memory.h"
#include "gpu/wave.h"
#include "kernels/attention/gpu/attention.h"
#include "kernels/attention/gpu/matrix_keys.h"
#include "kernels/attention/gpu/parts.h"
#include "kernels/attention/gpu/rows.h"
#include "kernels/attention/gpu/tile.h"

namespace quire::gpu {

// How q and out can be reached: by 16 bytes.
struct MatrixAccess {
  bool whole_queries, whole_out;
};

// kBands: of a wave's states; 0: all waves have the same band and share out the keys.
template <class KvType, class QueryType, int kHeadDims, int kBands>
struct MatrixShape {
  using Kv = KvType;
  using T = QueryType;
  static constexpr int kDims = kHeadDims;
  using Chunk = KeyChunk<Kv, T, kDims>;
  static constexpr bool kSpread = kBands == 0;
  static constexpr int32_t kWaves = kSpread ? (kDims <= 64 ? 4 : kDims <= 128 ? 2 : 1) : 4;
  static constexpr int32_t kThreads = kWaves * kWave, kTeam = kSpread ? kWave : kThreads;
  static constexpr int32_t kWaveBands = kSpread ? 1 : kBands, kWaveStates = kWaveBands * 16;
  static constexpr int32_t kStates = kSpread ? 16 : kWaves * kWaveStates;
  static constexpr int32_t kChunks = kSpread || kDims * kBands > 128 ? 1 : 2;  // fetched at once by a team
  static constexpr int32_t kKeys = (kSpread ? kWaves : kChunks) * kChunkKeys;
  static constexpr int32_t kTeamBytes = kChunks * Chunk::kBytes;
  static constexpr int32_t kSharedBytes = (kSpread ? kWaves : 1) * kTeamBytes;
  // Of a wave's result on its way to the merge: floats of a state.
  static constexpr int32_t kResultRow = kDims + 4;
  static_assert(kSharedBytes <= 64 * 1024 && 16 * kResultRow * 4 + 16 * 8 <= Chunk::kBytes);
  static constexpr int32_t kResident = resident(kThreads, 2);
  // Whether there are registers for the keys that come next.
  static constexpr bool kAhead = kWave == 64 && kDims <= 128;
};

constexpr float kLog2OfE = 1.44269504f;
// Weights in f16 are kept this much larger, by the power of two, so that few are subnormal: the matrix units of CDNA2
// take those for 0.
template <class T>
constexpr int kWeightShift = std::is_same_v<T, F16> ? 14 : 0;

__device__ inline float finite_base(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

// 8 elements of a row of q.
__device__ inline uint4 load_queries(const ConstHeadRows& q, int64_t at, bool whole) {
  const auto* const from = static_cast<const uint16_t*>(q.data) + at;
  if (whole) return *reinterpret_cast<const uint4*>(from);
  return make_uint4(load_pair(from, false), load_pair(from + 2, false), load_pair(from + 4, false),
                    load_pair(from + 6, false));
}

// 2^32 / size, rounded up, for sizes above 1.
__device__ inline uint32_t inverse_of_size(int32_t size) { return 0xffffffffu / static_cast<uint32_t>(size) + 1; }

// The right operands of a band's queries.
template <class Kv, class T, int kDims>
struct BandQueries {
  static constexpr bool kBytes = KeyChunk<Kv, T, kDims>::kByteKeys;
  static constexpr int kSteps = kDims / 32, kTerms = kBytes && std::is_same_v<T, F16> ? 3 : 2;
  MatrixOperand operands[kSteps][kTerms];  // 16-bit: the first and the last 4 of a group's 8 dimensions
  float factors[kLines];                   // of their scores

  __device__ void set(int32_t n, const uint4 (&packs)[kSteps]) {
    if constexpr (kBytes) {
      set_bytes(n, packs);
    } else {
      factors[n] = 1.0f;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) set_line(operands[step], n, packs[step]);
    }
  }

 private:
#if defined(QUIRE_F8_PRODUCTS)
  __device__ void set_bytes(int32_t n, const uint4 (&packs)[kSteps]) {
    uint32_t largest = 0;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      float values[8];
      unpack(packs[step], values);
#pragma unroll
      for (int i = 0; i < 8; ++i) largest = max(largest, __float_as_uint(values[i]) & 0x7fffffff);
    }
    largest = groups_max(largest);
    // Exponents as they are stored. The scale is 2 ^ (6 - exponent), and what undoes it is twice as large, as K is read
    // as a half of what it is. Queries that are no numbers make the scores none.
    const auto exponent = static_cast<int32_t>(largest >> 23);
    const int32_t scale = min(127 + 127 + 6 - exponent, 254);
    factors[n] = exponent == 255 ? NAN : 2.0f / bits_to_float(static_cast<uint32_t>(scale) << 23);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      float values[8];
      unpack(packs[step], values);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float rest[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) rest[i] = values[half * 4 + i] * bits_to_float(static_cast<uint32_t>(scale) << 23);
#pragma unroll
        for (int term = 0; term < kTerms; ++term) {
          const uint32_t bytes = to_fnuz(rest);
          operands[step][term].words[n][half] = bytes;
          float taken[4];
          from_fnuz(bytes, taken);
#pragma unroll
          for (int i = 0; i < 4; ++i) rest[i] -= taken[i];
        }
      }
    }
  }
#else
  __device__ void set_bytes(int32_t, const uint4 (&)[kSteps]) {}
#endif
  __device__ static void unpack(const uint4& pack, float (&values)[8]) {
    const Packed<T, 8> packed{{pack.x, pack.y, pack.z, pack.w}};
    packed.unpack(values);
  }
};

// Where a state's result goes, 8 dimensions at a time: to out, or as it is to the states of the launch.
template <class T, int kShift>
struct ResultWriter {
  const AttentionArgs& args;
  bool finish, whole_out;

  // maximum: of the scores times log2(e). sum, values: times 2^kShift.
  // Inline always: a call would keep registers in memory.
  __device__ __forceinline__ void write(const StatePlace& place, int64_t row, int32_t head, int32_t dim, float maximum,
                                        float sum, const float (&values)[8]) const {
    constexpr float kUnit = 1.0f / static_cast<float>(1 << kShift);
    float scale = kUnit;
    if (finish) {
      if (args.sinks != nullptr) {
        const float sink = args.sinks[head] * kLog2OfE, largest = finite_base(fmaxf(maximum, sink));
        scale *= exp2_fast(maximum - largest);
        sum = sum * scale + exp2_fast(sink - largest);
      } else {
        sum *= kUnit;
      }
      scale /= sum;
    }
    float scaled[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) scaled[i] = values[i] * scale;
    if (!finish) {
      store_floats(scaled, place.totals + dim);
      if (dim == 0) *place.numbers = make_float2(maximum, sum * kUnit);
      return;
    }
    const int64_t at = row * args.out.row_stride + head * args.out.head_stride + dim;
    if (whole_out) {
      store_floats(scaled, static_cast<T*>(args.out.data) + at);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) static_cast<T*>(args.out.data)[at + i] = from_float<T>(scaled[i]);
    }
  }
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    matrix_attend(AttentionArgs args, AttentionRequests requests, AttentionParts parts, MatrixAccess access) {
  using Kv = typename Shape::Kv;
  using T = typename Shape::T;
  using Chunk = typename Shape::Chunk;
  constexpr int kDims = Shape::kDims;
  using ValueType = typename Chunk::ValueType;
  using Queries = BandQueries<Kv, T, kDims>;
  constexpr int32_t kWaveBands = Shape::kWaveBands, kSteps = kDims / 32, kShift = kWeightShift<ValueType>;
  const PagedKv& kv = args.kv;
  const int32_t share = args.heads / kv.kv_heads, kv_head = static_cast<int32_t>(blockIdx.x) % kv.kv_heads;
  const auto slots = static_cast<int32_t>(gridDim.x) / kv.kv_heads;
  AttentionTile tile;
  // The last tiles see the most keys and start first.
  if (!find_tile<Shape::kStates>(requests, share, slots - 1 - static_cast<int32_t>(blockIdx.x) / kv.kv_heads, tile))
    return;

  const auto thread = static_cast<int32_t>(threadIdx.x), lane = thread % kWave, wave = thread / kWave;
  const auto part = static_cast<int32_t>(blockIdx.y);
  const auto row_of = [&](int32_t state) { return int64_t{tile.first_row + tile.row(state, share)}; };
  const auto head_of = [&](int32_t state) { return kv_head * share + (tile.first_state + state) % share; };
  const auto place_of = [&](int32_t state) {
    return state_place(parts, args, requests, part, row_of(state) - requests.query_offsets[0], head_of(state));
  };
  if (tile.kv_len == 0) {
    if (parts.kind == AttentionParts::Kind::kRound) return;
    if (parts.kind == AttentionParts::Kind::kSplit) {
      if (thread < tile.states) *place_of(thread).numbers = make_float2(-INFINITY, 0.0f);
      return;
    }
    for (int32_t i = thread; i < tile.states * kv.v_head_dim; i += Shape::kThreads) {
      const int32_t state = i / kv.v_head_dim;
      store_as(args.out.data, args.out.dtype,
               row_of(state) * args.out.row_stride + head_of(state) * args.out.head_stride + i % kv.v_head_dim, 0.0f);
    }
    return;
  }
  const PartKeys range = part_keys<Shape::kKeys>(args, requests, parts, tile, share, part);
  if (range.none) return;

  // Column line(lane, n) of band b is this state.
  const auto state_of = [&](int32_t band, int32_t n) {
    return (Shape::kSpread ? 0 : wave * Shape::kWaveStates + band * 16) + line_of(lane, n);
  };
  Queries queries[kWaveBands];
#pragma unroll
  for (int band = 0; band < kWaveBands; ++band) {
#pragma unroll
    for (int n = 0; n < kLines; ++n) {
      const int32_t state = state_of(band, n);
      uint4 packs[kSteps];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int32_t dim = step * 32 + group_of(lane) * 8;
        packs[step] = make_uint4(0, 0, 0, 0);
        if (state < tile.states && dim < kv.head_dim) {
          packs[step] =
              load_queries(args.q, row_of(state) * args.q.row_stride + head_of(state) * args.q.head_stride + dim,
                           access.whole_queries);
        }
      }
      queries[band].set(n, packs);
    }
  }

  // Of tile 2 * step + half: element e of line n is dimension 32 * step + 8 * group + 4 * half + e.
  MatrixTile totals[kWaveBands][2 * kSteps] = {};
  float maxima[kWaveBands][kLines], sums[kWaveBands][kLines];  // sums: of the lane's own keys
#pragma unroll
  for (int band = 0; band < kWaveBands; ++band) {
#pragma unroll
    for (int n = 0; n < kLines; ++n) {
      maxima[band][n] = -INFINITY;
      sums[band][n] = 0.0f;
      const int32_t state = state_of(band, n);
      if (range.fresh || state >= tile.states || (Shape::kSpread && wave > 0)) continue;
      const StatePlace place = place_of(state);
      constexpr float kUnit = static_cast<float>(1 << kShift);
      const float2 numbers = *place.numbers;
      maxima[band][n] = numbers.x;
      sums[band][n] = group_of(lane) == 0 ? numbers.y * kUnit : 0.0f;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int32_t dim = step * 32 + group_of(lane) * 8;
        if (dim >= kv.v_head_dim) continue;
        float values[8];
        load_floats(place.totals + dim, values);
#pragma unroll
        for (int i = 0; i < 8; ++i) totals[band][2 * step + i / 4][n][i % 4] = values[i] * kUnit;
      }
    }
  }

  const bool changed = args.soft_cap > 0.0f || args.alibi_slopes != nullptr;
  const float scale = changed ? args.scale : args.scale * kLog2OfE;
  // Keys in [all_see_from, all_see_to) are seen by every state of the tile.
  const int32_t all_see_to = min(tile.position(0, share) + 1, range.end),
                all_see_from = max(oldest_key(tile.position(tile.states - 1, share), args.window), range.begin);
  // The newest key that the wave's states see, -1 if it has none.
  const int32_t wave_state = Shape::kSpread ? 0 : wave * Shape::kWaveStates,
                wave_states = min(tile.states - wave_state, Shape::kWaveStates);
  const int32_t wave_last = wave_states > 0 ? tile.position(wave_state + wave_states - 1, share) : -1;

  using Fetch = KeyFetch<Kv, T, kDims, Shape::kChunks, Shape::kTeam>;
  const Fetch fetch{kv, range, kv_head, Shape::kSpread ? lane : thread, inverse_of_size(kv.block_size / 16)};

  // One chunk: keys first ... first + 31.
  const auto attend = [&](int32_t first, const Chunk& chunk) {
    // The lane's keys are first_of_lane ... + 7: element e of tile `half` is 4 * half + e.
    const int32_t first_of_lane = first + group_of(lane) * 8;
    float key_factors[8], value_factors[8];
    if constexpr (Chunk::kNarrow) {
      fetch.load_factors(kv.k_scales, first_of_lane, key_factors);
      fetch.load_factors(kv.v_scales, first_of_lane, value_factors);
    }
    MatrixTile weights[kWaveBands][2] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        MatrixOperand k[2];
        chunk.load_keys(k, lane, step, half);
#pragma unroll
        for (int band = 0; band < kWaveBands; ++band) {
#pragma unroll
          for (int term = 0; term < Queries::kTerms; ++term) {
            if constexpr (Chunk::kByteKeys) {
              multiply(Kv{}, weights[band][half], k[0], queries[band].operands[step][term]);
            } else {
              multiply(T{}, weights[band][half], k[term], queries[band].operands[step][term]);
            }
          }
        }
      }
    }

    const bool masked = first + kChunkKeys > all_see_to || first < all_see_from;
#pragma unroll
    for (int band = 0; band < kWaveBands; ++band) {
#pragma unroll
      for (int n = 0; n < kLines; ++n) {
        const int32_t state = state_of(band, n), position = tile.position(state, share);
        const int32_t newest = min(position, range.end - 1),
                      oldest = max(oldest_key(position, args.window), range.begin);
        const float factor = scale * queries[band].factors[n];
        const float slope =
            args.alibi_slopes != nullptr && state < tile.states ? args.alibi_slopes[head_of(state)] : 0.0f;
        float largest = -INFINITY;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float score = weights[band][i / 4][n][i % 4] * factor;
          if constexpr (Chunk::kNarrow) score *= key_factors[i];
          if (changed) {
            if (args.soft_cap > 0.0f) score = args.soft_cap * tanh_fast(__fdividef(score, args.soft_cap));
            score = kLog2OfE * fmaf(slope, static_cast<float>(first_of_lane + i - position), score);
          }
          if (masked && (first_of_lane + i > newest || first_of_lane + i < oldest)) score = -INFINITY;
          weights[band][i / 4][n][i % 4] = score;
          largest = fmaxf(largest, score);
        }
        largest = fmaxf(maxima[band][n], groups_max(largest));
        const float base = finite_base(largest) - static_cast<float>(kShift);
        const float shrink = exp2_fast(maxima[band][n] - finite_base(largest));
        maxima[band][n] = largest;
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float weight = exp2_fast(weights[band][i / 4][n][i % 4] - base);
          sum += weight;
          // Scales of keys that aren't seen may be no numbers.
          if constexpr (Chunk::kNarrow)
            weight = masked && !fetch.seen(first_of_lane + i) ? 0.0f : weight * value_factors[i];
          weights[band][i / 4][n][i % 4] = weight;
        }
        sums[band][n] = fmaf(sums[band][n], shrink, sum);
#pragma unroll
        for (int i = 0; i < 2 * kSteps; ++i) {
#pragma unroll
          for (int e = 0; e < 4; ++e) totals[band][i][n][e] *= shrink;
        }
      }
    }

    MatrixOperand operands[kWaveBands][2];
#pragma unroll
    for (int band = 0; band < kWaveBands; ++band) {
#pragma unroll
      for (int half = 0; half < 2; ++half) operands[band][half] = rounded_operand<ValueType>(weights[band][half]);
    }
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) {
      MatrixOperand v[2];
      chunk.load_values(v, lane, i / 2, i % 2);
#pragma unroll
      for (int band = 0; band < kWaveBands; ++band) {
        multiply(ValueType{}, totals[band][i], v[0], operands[band][0]);
        multiply(ValueType{}, totals[band][i], v[1], operands[band][1]);
      }
    }
  };

  auto* const memory = dynamic_shared_memory<char>();
  char* const chunks = memory + (Shape::kSpread ? wave * Shape::kTeamBytes : 0);
  const auto sync_team = [] {
    if constexpr (Shape::kSpread) {
      sync_wave();
    } else {
      __syncthreads();
    }
  };
  Packed<Kv, 8> keys[Fetch::kKeyTasks];
  typename Fetch::Values values[Fetch::kValueTasks];
  const auto load = [&](int32_t first) {
#pragma unroll
    for (int i = 0; i < Fetch::kKeyTasks; ++i) keys[i] = fetch.load_keys(i, first);
#pragma unroll
    for (int i = 0; i < Fetch::kValueTasks; ++i) values[i] = fetch.load_values(i, first);
  };
  const auto store = [&](int32_t first) {
#pragma unroll
    for (int i = 0; i < Fetch::kKeyTasks; ++i) fetch.store_keys(i, keys[i], first, chunks);
#pragma unroll
    for (int i = 0; i < Fetch::kValueTasks; ++i) fetch.store_values(i, values[i], first, chunks);
  };
  const auto load_and_store = [&](int32_t first) {
#pragma unroll 2
    for (int i = 0; i < Fetch::kKeyTasks; ++i) fetch.store_keys(i, fetch.load_keys(i, first), first, chunks);
#pragma unroll 1
    for (int i = 0; i < Fetch::kValueTasks; ++i) fetch.store_values(i, fetch.load_values(i, first), first, chunks);
  };
  const int32_t stop = range.stop;
  int32_t first = range.first + (Shape::kSpread ? wave * kChunkKeys : 0);
  if constexpr (Shape::kAhead) {
    if (first < stop) load(first);
  }
  for (; first < stop; first += Shape::kKeys) {
    sync_team();  // the keys before are used up
    if constexpr (Shape::kAhead) {
      store(first);
    } else {
      load_and_store(first);
    }
    sync_team();
    if constexpr (Shape::kAhead) {
      if (first + Shape::kKeys < stop) load(first + Shape::kKeys);
    }
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c) {
      const int32_t key = first + c * kChunkKeys;
      if (key < stop && key <= wave_last && key + kChunkKeys > range.begin)
        attend(key, Chunk{chunks + c * Chunk::kBytes});
    }
  }
#pragma unroll
  for (int band = 0; band < kWaveBands; ++band) {
#pragma unroll
    for (int n = 0; n < kLines; ++n) sums[band][n] = groups_sum(sums[band][n]);
  }

  const ResultWriter<T, kShift> writer{args, range.finish, access.whole_out};
  const auto eight_of = [&](int32_t band, int32_t n, int32_t step, float(&eight)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) eight[i] = totals[band][2 * step + i / 4][n][i % 4];
  };
  if constexpr (Shape::kSpread && Shape::kWaves > 1) {
    // Each wave leaves its states, and behind them their numbers, where its keys were.
    const auto result_of = [&](int32_t w) { return reinterpret_cast<float*>(memory + w * Shape::kTeamBytes); };
    const auto number_of = [&](int32_t w, int32_t state) -> float2& {
      return reinterpret_cast<float2*>(result_of(w) + 16 * Shape::kResultRow)[state];
    };
    sync_wave();
#pragma unroll
    for (int n = 0; n < kLines; ++n) {
      const int32_t state = state_of(0, n);
      if (group_of(lane) == 0) number_of(wave, state) = make_float2(maxima[0][n], sums[0][n]);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        float eight[8];
        eight_of(0, n, step, eight);
        store_floats(eight, result_of(wave) + state * Shape::kResultRow + step * 32 + group_of(lane) * 8);
      }
    }
    __syncthreads();
    for (int32_t i = thread; i < tile.states * (kDims / 8); i += Shape::kThreads) {
      const int32_t state = i / (kDims / 8), dim = i % (kDims / 8) * 8;
      if (dim >= kv.v_head_dim) continue;
      float largest = -INFINITY, sum = 0.0f, eight[8] = {};
#pragma unroll
      for (int w = 0; w < Shape::kWaves; ++w) largest = fmaxf(largest, number_of(w, state).x);
#pragma unroll
      for (int w = 0; w < Shape::kWaves; ++w) {
        const float factor = exp2_fast(number_of(w, state).x - finite_base(largest));
        sum = fmaf(factor, number_of(w, state).y, sum);
        float from[8];
        load_floats(result_of(w) + state * Shape::kResultRow + dim, from);
#pragma unroll
        for (int e = 0; e < 8; ++e) eight[e] = fmaf(factor, from[e], eight[e]);
      }
      writer.write(place_of(state), row_of(state), head_of(state), dim, largest, sum, eight);
    }
  } else {
#pragma unroll
    for (int band = 0; band < kWaveBands; ++band) {
#pragma unroll
      for (int n = 0; n < kLines; ++n) {
        const int32_t state = state_of(band, n);
        if (state >= tile.states) continue;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const int32_t dim = step * 32 + group_of(lane) * 8;
          if (dim >= kv.v_head_dim) continue;
          float eight[8];
          eight_of(band, n, step, eight);
          writer.write(place_of(state), row_of(state), head_of(state), dim, maxima[band][n], sums[band][n], eight);
        }
      }
    }
  }
}

template <class Kv, class T, int kDims, int kBands>
void launch_matrix_shape(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                         Stream& stream) {
  using Shape = MatrixShape<Kv, T, kDims, kBands>;
  constexpr size_t kShared = Shape::kSharedBytes;
  const auto kernel = matrix_attend<Shape>;
  constexpr size_t kAlwaysAllowed = 48 * 1024;
  if (kShared > kAlwaysAllowed) allow_shared_memory(kernel, kShared);
  const int32_t slots = tile_slots<Shape::kStates>(requests, args.heads / args.kv.kv_heads);
  const ConstHeadRows& q = args.q;
  const HeadRows& out = args.out;
  const MatrixAccess access{rows_aligned(q.data, q.row_stride, q.head_stride, q.dtype, 8),
                            rows_aligned(out.data, out.row_stride, out.head_stride, out.dtype, 8)};
  const dim3 grid(static_cast<unsigned>(slots * args.kv.kv_heads), static_cast<unsigned>(parts.count));
  launch(stream, kernel, grid, dim3(Shape::kThreads), kShared, args, requests, parts, access);
}

}  // namespace quire::gpu
