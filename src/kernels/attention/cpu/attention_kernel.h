#pragma once
// attention.h's contract written once over an Isa of kernels/simd.
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/kv_tile.h"
#include "kernels/simd/exp.h"

namespace quire {

template <class Isa>
struct AttentionKernel {
  using F = typename Isa::F;
  static constexpr float kMinusInfinity = -__builtin_inff();

  // A softmax state in scratch: values are `width` floats, a multiple of 16.
  struct State {
    float* max;
    float* sum;
    float* values;
  };

  struct Scratch {
    float *k, *v, *q, *weights, *partition, *chunk, *total;
    int64_t width, state;
    Scratch(float* base, int32_t rows, int32_t head_dim) : width((head_dim + 15) / 16 * 16), state(2 + width) {
      const auto take = [&](int64_t n) {
        float* p = base;
        base += (n + 15) / 16 * 16;
        return p;
      };
      k = take(kPartitionKeys * width);
      v = take(kPartitionKeys * width);
      q = take(rows * width);
      weights = take(kPartitionKeys);
      partition = take(state);
      chunk = take(rows * state);
      total = take(rows * state);
    }
    State at(float* states, int64_t i) const {
      return {states + i * state + width, states + i * state + width + 1, states + i * state};
    }
  };

  static void clear(State s, int64_t width) {
    *s.max = kMinusInfinity;
    *s.sum = 0.0f;
    for (int64_t d = 0; d < width; d += 16) Isa::store(s.values + d, Isa::zero());
  }

  static float exp_one(float x) {
    float lanes[16];
    Isa::store(lanes, simd_exp<Isa>(Isa::set1(x)));
    return lanes[0];
  }

  // into = into merged with from, whose keys come after. A state without keys (maximum -inf) weighs nothing.
  static void merge(State into, State from, int64_t width) {
    if (*from.max == kMinusInfinity) return;
    const float max = *into.max > *from.max ? *into.max : *from.max;
    const float old_weight = *into.max == kMinusInfinity ? 0.0f : exp_one(*into.max - max),
                new_weight = exp_one(*from.max - max);
    *into.max = max;
    *into.sum = *into.sum * old_weight + *from.sum * new_weight;
    for (int64_t d = 0; d < width; d += 16) {
      const F old_part = Isa::mul(Isa::load(into.values + d), Isa::set1(old_weight));
      Isa::store(into.values + d, Isa::fma(Isa::load(from.values + d), Isa::set1(new_weight), old_part));
    }
  }

  // Scores of keys [0, n) of the tile; lanes past n are -inf.
  static F scores16(const float* q, const float* k, int64_t n, int64_t width) {
    F sums[16];
    for (int64_t j = 0; j < 16; ++j) sums[j] = Isa::zero();
    for (int64_t j = 0; j < n; ++j) {
      F sum = Isa::zero();
      for (int64_t d = 0; d < width; d += 16) sum = Isa::fma(Isa::load(q + d), Isa::load(k + j * width + d), sum);
      sums[j] = sum;
    }
    const F scores = Isa::sum16(sums);
    if (n == 16) return scores;
    float lanes[16];
    Isa::store(lanes, scores);
    for (int64_t j = n; j < 16; ++j) lanes[j] = kMinusInfinity;
    return Isa::load(lanes);
  }

  // values[d] += sum over keys of weight * v, N registers of d at a time.
  template <int N>
  static void weigh(const float* weights, const float* v, int64_t keys, int64_t width, float* values) {
    F sums[N];
    for (int i = 0; i < N; ++i) sums[i] = Isa::zero();
    for (int64_t j = 0; j < keys; ++j) {
      const F weight = Isa::set1(weights[j]);
      for (int i = 0; i < N; ++i) sums[i] = Isa::fma(weight, Isa::load(v + j * width + 16 * i), sums[i]);
    }
    for (int i = 0; i < N; ++i) Isa::store(values + 16 * i, sums[i]);
  }

  // The state of one row over the first `keys` keys of the tile.
  static void attend_partition(const float* q, const Scratch& s, int64_t keys, State out) {
    F scores[kPartitionKeys / 16];
    F largest = Isa::set1(kMinusInfinity);
    const int64_t groups = (keys + 15) / 16;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t n = keys - 16 * g < 16 ? keys - 16 * g : 16;
      scores[g] = scores16(q, s.k + 16 * g * s.width, n, s.width);
      largest = Isa::max(largest, scores[g]);
    }
    const float max = Isa::max_lane(largest);
    F sum = Isa::zero();
    for (int64_t g = 0; g < groups; ++g) {
      const F weight = simd_exp<Isa>(Isa::sub(scores[g], Isa::set1(max)));
      Isa::store(s.weights + 16 * g, weight);
      sum = Isa::add(sum, weight);
    }
    *out.max = max;
    *out.sum = Isa::sum(sum);
    int64_t d = 0;
    for (; d + 64 <= s.width; d += 64) weigh<4>(s.weights, s.v + d, keys, s.width, out.values + d);
    for (; d < s.width; d += 16) weigh<1>(s.weights, s.v + d, keys, s.width, out.values + d);
  }

  static void write_row(const AttentionArgs& args, int64_t row, int64_t head, State s) {
    const float inverse = *s.sum > 0.0f ? 1.0f / *s.sum : 0.0f;
    float* out = args.out + row * args.ldo + head * args.kv.head_dim;
    for (int64_t d = 0; d < args.kv.head_dim; ++d) out[d] = s.values[d] * inverse;
    // A NaN among the scores must reach the logits, where its request ends; the maximum drops it, the sum does not.
    if (*s.sum != *s.sum) out[0] = *s.sum;
  }

  template <class T, bool kBf16>
  static void attend_typed(const AttentionArgs& args, const AttentionTask& task, int32_t kv_head, float* partials,
                           float* scratch) {
    const int32_t head_dim = args.kv.head_dim, share = args.heads / args.kv.kv_heads, states = task.rows * share;
    const Scratch s(scratch, states, head_dim);
    for (int32_t i = 0; i < states; ++i) {
      const float* q =
          args.q + (task.first_row + i / share) * args.ldq + (int64_t{kv_head} * share + i % share) * head_dim;
      float* row = s.q + i * s.width;
      for (int64_t d = 0; d < s.width; ++d) row[d] = d < head_dim ? q[d] * args.scale : 0.0f;
      clear(s.at(s.total, i), s.width);
    }
    if (s.width != head_dim) {
      for (int64_t i = 0; i < 2 * kPartitionKeys * s.width; ++i)
        s.k[i] = 0.0f;  // the padding of K and V, which lie side by side
    }
    const int64_t keys_of_last_row = int64_t{task.first_position} + task.rows;
    for (int32_t chunk = task.first_chunk; chunk < task.first_chunk + task.chunks; ++chunk) {
      for (int32_t i = 0; i < states; ++i) clear(s.at(s.chunk, i), s.width);
      for (int64_t first = int64_t{chunk} * kChunkKeys; first < (int64_t{chunk} + 1) * kChunkKeys;
           first += kPartitionKeys) {
        const int64_t available = keys_of_last_row - first < kPartitionKeys ? keys_of_last_row - first : kPartitionKeys;
        if (available <= 0) break;
        KvTile<Isa, T, kBf16>::load(args.kv, task.block_table, kv_head, first, available, s.width, s.k, s.v);
        for (int32_t i = 0; i < states; ++i) {
          const int64_t seen = int64_t{task.first_position} + i / share + 1 - first,
                        keys = seen < available ? seen : available;
          if (keys <= 0) continue;
          attend_partition(s.q + i * s.width, s, keys, s.at(s.partition, 0));
          merge(s.at(s.chunk, i), s.at(s.partition, 0), s.width);
        }
      }
      for (int32_t i = 0; i < states; ++i) merge(s.at(s.total, i), s.at(s.chunk, i), s.width);
    }
    for (int32_t i = 0; i < states; ++i) {
      const State state = s.at(s.total, i);
      const int64_t head = int64_t{kv_head} * share + i % share;
      if (task.partial < 0) {
        write_row(args, task.first_row + i / share, head, state);
      } else {
        float* partial = partials + (int64_t{task.partial} * args.heads + head) * attention_state_floats(head_dim);
        partial[0] = *state.max;
        partial[1] = *state.sum;
        for (int64_t d = 0; d < head_dim; ++d) partial[2 + d] = state.values[d];
      }
    }
  }

  static void attend(const AttentionArgs& args, const AttentionTask& task, int32_t kv_head, float* partials,
                     float* scratch) {
    switch (args.kv.dtype) {
      case DType::kF32:
        return attend_typed<float, false>(args, task, kv_head, partials, scratch);
      case DType::kBF16:
        return attend_typed<uint16_t, true>(args, task, kv_head, partials, scratch);
      default:
        return attend_typed<uint16_t, false>(args, task, kv_head, partials,
                                             scratch);  // f16; the registry admits no other
    }
  }

  static void combine(const AttentionArgs& args, int32_t row, int32_t head, const float* partials,
                      int32_t first_partial, int32_t count, float* scratch) {
    const int32_t head_dim = args.kv.head_dim;
    const Scratch s(scratch, 1, head_dim);
    const State total = s.at(s.total, 0), chunk = s.at(s.chunk, 0);
    clear(total, s.width);
    clear(chunk, s.width);
    for (int32_t i = 0; i < count; ++i) {
      const float* partial =
          partials + (int64_t{first_partial + i} * args.heads + head) * attention_state_floats(head_dim);
      *chunk.max = partial[0];
      *chunk.sum = partial[1];
      for (int64_t d = 0; d < head_dim; ++d) chunk.values[d] = partial[2 + d];
      merge(total, chunk, s.width);
    }
    write_row(args, row, head, total);
  }

  static const AttentionKernels& table() {
    static constexpr AttentionKernels kTable{attend, combine};
    return kTable;
  }
};

}  // namespace quire
