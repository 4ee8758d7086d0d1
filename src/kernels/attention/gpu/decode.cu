// Decodes of one row a request on tensor cores.
//
// A row is a request, a KV head and up to 16 of the query heads that share it; its keys are cut into units of 64. The
// rows of a request are spread over lanes, as a rule one each. The units of all rows of a lane, one after another, are
// dealt out to the blocks of the lane in equal runs, which each block finds by itself from the lengths. So blocks that
// are neighbours in the grid work on the same keys at the same time, on other heads of them, which memory likes. In a
// block every wave takes 16 keys of a unit, through a ring of its own in shared memory that is filled some units ahead,
// across the bounds of rows. Where a run leaves a row, the waves' softmax states are merged: to the output if the block
// had the whole row, else to memory, and the last block that comes with a part of the row merges all of them in the
// order of their keys.
#include "gpu/numeric.h"
#include "gpu/shared_memory.h"
#include "gpu/wave.h"
#include "kernels/attention/gpu/attention.h"
#include "kernels/attention/gpu/decode_run.h"
#include "kernels/attention/gpu/kv_chunk.h"
#include "kernels/attention/gpu/parts.h"
#include "kernels/attention/gpu/rows.h"
#include "kernels/attention/gpu/tile.h"

namespace quire::gpu {
namespace {

constexpr int32_t kRowHeads = 16;  // query heads of a row: the rows of a product
// Rows of a KV head.
__host__ __device__ constexpr int32_t row_groups(int32_t share) { return (share + kRowHeads - 1) / kRowHeads; }

}  // namespace

int32_t attention_decode_blocks(const DeviceInfo& device) {
  return (device.major >= 9 ? 2 : 1) * device.multiprocessors;
}

// A block shares the row that its run begins in and the one that it ends in. A state: the weighted sum of V, the
// maximum and the sum of weights.
int64_t attention_decode_state_floats(int32_t v_head_dim, int32_t blocks) {
  return int64_t{blocks} * 2 * kRowHeads * (v_head_dim + 2);
}

int64_t attention_decode_counters(int32_t heads, int32_t kv_heads, int32_t max_requests) {
  return int64_t{max_requests} * kv_heads * row_groups(heads / kv_heads);
}

#if defined(__HIP_PLATFORM_AMD__)

bool attention_decode_fits(const AttentionArgs&) { return false; }
void attention_decode(const AttentionArgs& args, const AttentionRequests& requests, const DecodeSplit&,
                      Stream& stream) {
  launch_general(args, requests, {}, true, stream);
}

#else

namespace {

// A wave's copies from the cache to its ring.
template <int kDims, bool kShuffled>
struct Fetcher {
  static constexpr int32_t kVOffset = KvChunk<kDims, kShuffled>::kBytes, kStageBytes = 2 * kVOffset;

  const PagedKv& kv;
  const AttentionRequests& requests;
  int32_t rows, first_row, groups, window;  // rows of a request in this lane; groups of all rows share a KV head
  Place place;                              // of the next unit to fetch
  const int32_t* table = nullptr;
  int64_t block = 0;  // of the wave's keys there, read ahead

  __device__ int32_t wave() const { return static_cast<int32_t>(threadIdx.x) / kWave; }
  __device__ int32_t first_key() const { return place.unit * kUnit + wave() * kChunk; }

  __device__ void start(const Place& begin) {
    place = begin;
    find_block(true);
  }

  __device__ void find_block(bool other_request) {
    if (other_request) {
      if (place.request >= requests.requests) return;
      table = requests.block_tables + requests.block_table_rows[place.request] * requests.block_table_stride;
    }
    const int32_t key = first_key();
    if (key < place.kv_len && key + kChunk > place.oldest) block = table[key / kv.block_size];
  }

  // Fetches the wave's keys of this unit, if there are any, and goes on to the next.
  __device__ void fetch(uint32_t stage) {
    const int32_t key = first_key();
    if (key < place.kv_len && key + kChunk > place.oldest) copy(key, stage);
    const int32_t request = place.request;
    place.advance(requests, rows, window);
    find_block(place.request != request);
  }

  __device__ void copy(int32_t first, uint32_t stage) const {
    KvChunk<kDims, kShuffled>::copy(kv, block, first % kv.block_size, (first_row + place.row) / groups,
                                    place.kv_len - first, stage, stage + kVOffset);
  }
};

// Four elements of a row of out.
__device__ inline void store_four(const HeadRows& out, int64_t at, float4 x) {
  store_as(out.data, out.dtype, at, x.x);
  store_as(out.data, out.dtype, at + 1, x.y);
  store_as(out.data, out.dtype, at + 2, x.z);
  store_as(out.data, out.dtype, at + 3, x.w);
}

__device__ inline void add_scaled(float4& to, float factor, const float4& x) {
  to.x = fmaf(factor, x.x, to.x);
  to.y = fmaf(factor, x.y, to.y);
  to.z = fmaf(factor, x.z, to.z);
  to.w = fmaf(factor, x.w, to.w);
}

__device__ inline void write_row(const AttentionArgs& args, int64_t row, int32_t head, int32_t dim, float maximum,
                                 float sum, float4 total) {
  float factor = 1.0f;
  if (args.sinks != nullptr) {
    const float sink = args.sinks[head] * kLog2E, largest = finite(fmaxf(maximum, sink));
    factor = exp2_fast(maximum - largest);
    sum = sum * factor + exp2_fast(sink - largest);
  }
  factor /= sum;
  total.x *= factor, total.y *= factor, total.z *= factor, total.w *= factor;
  store_four(args.out, row * args.out.row_stride + head * args.out.head_stride + dim, total);
}

// A wave's state over its keys of one row, spread as gpu/matrix_instructions.h says: lane / 4 and 8 more are query
// heads.
template <class T, int kDims, bool kShuffled>
struct RowState {
  static constexpr int kTiles = kDims / 8, kSteps = kDims / 16;
  static constexpr int32_t kVOffset = Fetcher<kDims, kShuffled>::kVOffset;

  uint32_t queries[kSteps][4];
  float totals[kTiles][4];
  float maxima[2], sums[2], slopes[2];  // sums: of this lane's keys

  // heads: query heads of the row, from first_head on.
  __device__ void start(const AttentionArgs& args, int64_t row, int32_t first_head, int32_t heads, bool even) {
    const auto lane = static_cast<int32_t>(threadIdx.x) % kWave;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t head = lane / 4 + 8 * half;
      maxima[half] = -INFINITY;
      sums[half] = slopes[half] = 0.0f;
      if (head < heads && args.alibi_slopes != nullptr) slopes[half] = args.alibi_slopes[first_head + head] * kLog2E;
      const auto* const from = static_cast<const uint16_t*>(args.q.data) + row * args.q.row_stride +
                               (first_head + head) * args.q.head_stride + lane % 4 * 2;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        queries[step][half] = head < heads ? load_pair(from + 16 * step, even) : 0;
        queries[step][half + 2] = head < heads ? load_pair(from + 16 * step + 8, even) : 0;
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) totals[tile][i] = 0.0f;
    }
  }

  // Keys first ... first + 15 of the row at `place`, whose stage is filled.
  __device__ void attend(const AttentionArgs& args, const Place& place, int32_t first, uint32_t stage) {
    const auto lane = static_cast<int32_t>(threadIdx.x) % kWave;
    float scores[2][4] = {}, odd_scores[2][4] = {};  // two chains of products are half as long
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      float(&sums_of)[2][4] = step % 2 == 0 ? scores : odd_scores;
      uint32_t k[4];
      KvChunk<kDims, kShuffled>::load_k(k, stage, step);
      multiply(T{}, sums_of[0], queries[step], k[0], k[1]);
      multiply(T{}, sums_of[1], queries[step], k[2], k[3]);
    }
    const float scale = args.soft_cap > 0.0f ? args.scale / args.soft_cap : args.scale * kLog2E;
    const bool bounds = first + kChunk > place.kv_len || first < place.oldest;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t key = first + tile * 8 + lane % 4 * 2 + i % 2;
        float score = (scores[tile][i] + odd_scores[tile][i]) * scale;
        if (args.soft_cap > 0.0f) score = args.soft_cap * kLog2E * tanh_fast(score);
        if (args.alibi_slopes != nullptr) score += slopes[i / 2] * static_cast<float>(key - (place.kv_len - 1));
        if (bounds && (key >= place.kv_len || key < place.oldest)) score = -INFINITY;
        scores[tile][i] = score;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = fmaxf(fmaxf(scores[0][2 * half], scores[0][2 * half + 1]),
                            fmaxf(scores[1][2 * half], scores[1][2 * half + 1]));
      largest = fmaxf(maxima[half], wave_max<4>(largest));
      const float base = finite(largest), factor = exp2_fast(maxima[half] - base);
      maxima[half] = largest;
      sums[half] *= factor;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[tile][i] = exp2_fast(scores[tile][i] - base);
          sums[half] += scores[tile][i];
        }
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        totals[tile][2 * half] *= factor;
        totals[tile][2 * half + 1] *= factor;
      }
    }
    const uint32_t weights[4] = {pack_pair(T{}, scores[0][0], scores[0][1]), pack_pair(T{}, scores[0][2], scores[0][3]),
                                 pack_pair(T{}, scores[1][0], scores[1][1]),
                                 pack_pair(T{}, scores[1][2], scores[1][3])};
#pragma unroll
    for (int pair = 0; pair < kTiles / 2; ++pair) {
      uint32_t v[4];
      KvChunk<kDims, kShuffled>::load_v(v, stage + kVOffset, pair);
      multiply(T{}, totals[2 * pair], weights, v[0], v[1]);
      multiply(T{}, totals[2 * pair + 1], weights, v[2], v[3]);
    }
  }

  // Column of `shared` rows where dimension `dim` of a head lies: neighbouring heads in different banks.
  __device__ static int32_t column(int32_t head, int32_t dim) { return ((dim / 8) ^ (head & 7)) * 8 + dim % 8; }

  // totals to `rows` [kRowHeads, kDims], maxima and sums to `numbers` [kRowHeads].
  __device__ void save(int32_t heads, float* rows, float2* numbers) {
    const auto lane = static_cast<int32_t>(threadIdx.x) % kWave;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t head = lane / 4 + 8 * half;
      const float sum = wave_sum<4>(sums[half]);
      if (head >= heads) continue;
      if (lane % 4 == 0) numbers[head] = make_float2(maxima[half], sum);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        *reinterpret_cast<float2*>(rows + head * kDims + column(head, tile * 8 + lane % 4 * 2)) =
            make_float2(totals[tile][2 * half], totals[tile][2 * half + 1]);
      }
    }
  }
};

// Merges the states that blocks `first` to `last` left of a row.
template <int kDims, class PlaceOf>
__device__ inline void merge(const AttentionArgs& args, const float* states, const float* kept_numbers, int64_t row,
                             int32_t first_head, int32_t heads, int32_t first, int32_t last, PlaceOf place_of) {
  constexpr int kLanes = kDims / 4;  // of a head, four dimensions each
  constexpr int kAhead = 8;          // states loaded before their weights are known
  const auto thread = static_cast<int32_t>(threadIdx.x), lane = thread % kLanes;
  for (int32_t head = thread / kLanes; head < (heads + 1) / 2 * 2; head += kThreads / kLanes) {
    const int32_t h = min(head, heads - 1);  // all lanes of a wave take part
    const auto total_of = [&](int32_t block) {
      return __ldcg(
          reinterpret_cast<const float4*>(states + int64_t{place_of(min(block, last)) + h} * kDims + lane * 4));
    };
    float largest = -INFINITY, sum = 0.0f;
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int32_t begin = first; begin <= last; begin += kLanes) {
      // Lane i has the numbers of the i-th block from here.
      float2 number = make_float2(-INFINITY, 0.0f);
      if (begin + lane <= last)
        number = __ldcg(reinterpret_cast<const float2*>(kept_numbers) + place_of(begin + lane) + h);
      float4 ahead[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) ahead[i] = total_of(begin + i);
      const float before = largest;
      largest = fmaxf(largest, wave_max<kLanes>(number.x));
      const float base = finite(largest), weight = exp2_fast(number.x - base), shrink = exp2_fast(before - base);
      sum = fmaf(sum, shrink, wave_sum<kLanes>(weight * number.y));
      total.x *= shrink, total.y *= shrink, total.z *= shrink, total.w *= shrink;
      const int32_t count = min(kLanes, last - begin + 1), origin = thread % kWave / kLanes * kLanes;
      for (int32_t done = 0; done < count; done += kAhead) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const float factor = shuffle(weight, origin + (done + i) % kLanes);
          if (done + i < count) add_scaled(total, factor, ahead[i]);
        }
        if (done + kAhead >= count) break;
#pragma unroll
        for (int i = 0; i < kAhead; ++i) ahead[i] = total_of(begin + done + kAhead + i);
      }
    }
    if (head < heads) write_row(args, row, first_head + head, lane * 4, largest, sum, total);
  }
}

template <class T, int kDims, bool kShuffled>
struct DecodeShape {
  using Fetch = Fetcher<kDims, kShuffled>;
  static constexpr int32_t kStages = 384 / kDims;
  static constexpr int32_t kRingBytes = kStages * Fetch::kStageBytes;  // of a wave
};

template <class T, int kDims, bool kShuffled>
__global__ void __launch_bounds__(kThreads, 2)
    decode(AttentionArgs args, AttentionRequests requests, DecodeSplit split, int32_t lanes, bool even) {
  using Shape = DecodeShape<T, kDims, kShuffled>;
  using State = RowState<T, kDims, kShuffled>;
  constexpr int32_t kStages = Shape::kStages, kStageBytes = Shape::Fetch::kStageBytes;
  __shared__ SharedRun shared_run;
  __shared__ float2 numbers[kWaves][kRowHeads];
  __shared__ bool last_comes;

  let_next_kernel_start();
  wait_for_previous_kernel();
  const auto thread = static_cast<int32_t>(threadIdx.x), wave = thread / kWave;
  const int32_t share = args.heads / args.kv.kv_heads, groups = row_groups(share), all_rows = args.kv.kv_heads * groups;
  const int32_t lane = static_cast<int32_t>(blockIdx.x) % lanes, rows = all_rows / lanes, first_row = lane * rows;
  const int32_t block = static_cast<int32_t>(blockIdx.x) / lanes, blocks = static_cast<int32_t>(gridDim.x) / lanes;
  auto* const ring = dynamic_shared_memory<char>();
  const uint32_t my_ring = shared_address(ring + wave * Shape::kRingBytes);

  const Run run = find_run(requests, block, blocks, rows, args.window, args.kv.block_size, shared_run);
  const int32_t steps = run.end - run.begin;
  if (steps > 0) {
    typename Shape::Fetch fetcher{args.kv, requests, rows, first_row, groups, args.window, {}};
    fetcher.start(run.place);
#pragma unroll
    for (int32_t stage = 0; stage < kStages - 1; ++stage) {
      if (stage < steps) fetcher.fetch(my_ring + stage * kStageBytes);
      commit_copies();
    }
    Place place = run.place;
    State state;
    bool other_row = true;
    int32_t part_begin = place.unit, stage = 0, head = 0, heads = 0;
    for (int32_t step = 0; step < steps; ++step) {
      if (other_row) {
        const int32_t row = first_row + place.row, group = row % groups;
        head = row / groups * share + group * kRowHeads;
        heads = min(kRowHeads, share - group * kRowHeads);
        part_begin = place.unit;
        state.start(args, requests.first_token + place.request, head, heads, even);
      }
      wait_for_copies<kStages - 2>();
      __syncwarp();
      if (step + kStages - 1 < steps) {
        const int32_t free_stage = stage == 0 ? kStages - 1 : stage - 1;
        fetcher.fetch(my_ring + free_stage * kStageBytes);
      }
      commit_copies();
      const int32_t key = place.unit * kUnit + wave * kChunk;
      if (key < place.kv_len && key + kChunk > place.oldest)
        state.attend(args, place, key, my_ring + stage * kStageBytes);

      const bool row_ends = place.unit + 1 == place.end;
      if (row_ends || step + 1 == steps) {
        // The stage is used up, and has just the size of a state.
        __syncwarp();
        state.save(heads, reinterpret_cast<float*>(ring + wave * Shape::kRingBytes + stage * kStageBytes),
                   numbers[wave]);
        __syncthreads();
        const bool whole = row_ends && part_begin == place.first();
        const int32_t row_begin = run.begin + step - (place.unit - place.first()),
                      row_end = row_begin + place.end - place.first();
        const int32_t first_block = row_begin / run.units, last_block = (row_end - 1) / run.units;
        // A block leaves the state of the row that it begins in at an even place, that of the row it ends in at the
        // next.
        const auto place_of = [&](int32_t b) {
          return ((b * lanes + lane) * 2 + (row_begin > b * run.units ? 1 : 0)) * kRowHeads;
        };
        float* const kept_numbers = split.states + int64_t{static_cast<int32_t>(gridDim.x)} * 2 * kRowHeads * kDims;
        for (int32_t i = thread; i < heads * (kDims / 4); i += kThreads) {
          const int32_t h = i / (kDims / 4), dim = i % (kDims / 4) * 4;
          float largest = numbers[0][h].x;
#pragma unroll
          for (int w = 1; w < kWaves; ++w) largest = fmaxf(largest, numbers[w][h].x);
          const float base = finite(largest);
          float sum = 0.0f;
          float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
          for (int w = 0; w < kWaves; ++w) {
            const float factor = exp2_fast(numbers[w][h].x - base);
            sum = fmaf(factor, numbers[w][h].y, sum);
            const auto* const from =
                reinterpret_cast<const float*>(ring + w * Shape::kRingBytes + stage * kStageBytes) + h * kDims;
            add_scaled(total, factor, *reinterpret_cast<const float4*>(from + State::column(h, dim)));
          }
          if (whole) {
            write_row(args, requests.first_token + place.request, head + h, dim, largest, sum, total);
          } else {
            const int64_t at = place_of(block) + h;
            *reinterpret_cast<float4*>(split.states + at * kDims + dim) = total;
            if (dim == 0) *reinterpret_cast<float2*>(kept_numbers + 2 * at) = make_float2(largest, sum);
          }
        }
        __syncthreads();
        if (!whole) {
          if (thread == 0) {
            __threadfence();  // what all threads have written before the barrier
            const auto others = static_cast<uint32_t>(last_block - first_block);
            // Wraps to 0 with the last, ready for the next launch.
            last_comes = atomicInc(split.counters + place.request * all_rows + first_row + place.row, others) == others;
            __threadfence();
          }
          __syncthreads();
          if (last_comes) {
            merge<kDims>(args, split.states, kept_numbers, requests.first_token + place.request, head, heads,
                         first_block, last_block, place_of);
          }
        }
      }
      other_row = place.advance(requests, rows, args.window);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    wait_for_copies<0>();
  }

  // Padding.
  for (auto request = static_cast<int32_t>(blockIdx.x); request < requests.requests;
       request += static_cast<int32_t>(gridDim.x)) {
    if (requests.kv_lens[request] > 0) continue;
    for (int32_t i = thread; i < args.heads * kDims; i += kThreads) {
      const int64_t row = requests.first_token + request;
      store_as(args.out.data, args.out.dtype, row * args.out.row_stride + i / kDims * args.out.head_stride + i % kDims,
               0.0f);
    }
  }
}

// The most lanes that share out the rows of a request equally and leave few of the blocks without work.
int32_t lanes_of(int32_t rows, int32_t blocks) {
  for (int32_t lanes = rows; lanes > 1; --lanes) {
    if (rows % lanes == 0 && blocks % lanes <= blocks / 32) return lanes;
  }
  return 1;
}

template <class T, int kDims, bool kShuffled>
void launch_decode(const AttentionArgs& args, const AttentionRequests& requests, const DecodeSplit& split,
                   Stream& stream) {
  using Shape = DecodeShape<T, kDims, kShuffled>;
  constexpr size_t kShared = kWaves * Shape::kRingBytes;
  allow_shared_memory(decode<T, kDims, kShuffled>, kShared);
  const int32_t rows = args.kv.kv_heads * row_groups(args.heads / args.kv.kv_heads),
                lanes = lanes_of(rows, split.blocks);
  // Where every row is taken whole, more blocks than rows find nothing.
  const bool whole = requests.max_kv_len <= kWholeUnits * kUnit;
  const int32_t most = split.blocks / lanes, enough = requests.requests * (rows / lanes);
  const int32_t blocks = (whole && enough < most ? enough : most) * lanes;
  const bool even = rows_aligned(args.q.data, args.q.row_stride, args.q.head_stride, args.q.dtype, 2);
  launch_overlapping(stream, decode<T, kDims, kShuffled>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 1,
                     kShared, args, requests, split, lanes, even);
}

template <class T>
void launch_typed(const AttentionArgs& args, const AttentionRequests& requests, const DecodeSplit& split,
                  Stream& stream) {
  const bool shuffled = args.kv.layout == KvLayout::kShuffle;
  if (args.kv.head_dim == 64) {
    (shuffled ? launch_decode<T, 64, true> : launch_decode<T, 64, false>)(args, requests, split, stream);
  } else {
    (shuffled ? launch_decode<T, 128, true> : launch_decode<T, 128, false>)(args, requests, split, stream);
  }
}

}  // namespace

bool attention_decode_fits(const AttentionArgs& args) {
  const PagedKv& kv = args.kv;
  return (kv.dtype == DType::kF16 || kv.dtype == DType::kBF16) && args.q.dtype == kv.dtype &&
         (kv.head_dim == 64 || kv.head_dim == 128) && kv.v_head_dim == kv.head_dim;
}

void attention_decode(const AttentionArgs& args, const AttentionRequests& requests, const DecodeSplit& split,
                      Stream& stream) {
  if (requests.requests == 0) return;
  if (args.kv.dtype == DType::kF16) {
    launch_typed<F16>(args, requests, split, stream);
  } else {
    launch_typed<BF16>(args, requests, split, stream);
  }
}

#endif

}  // namespace quire::gpu
