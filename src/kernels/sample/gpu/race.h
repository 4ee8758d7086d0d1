#pragma once
// The Gumbel race of sample/gumbel.h over the chunks of a row. Most values are computed in f32, with a known error;
// only those that may win are computed in f64, as the CPU does. Included by GPU sources only.
#include "kernels/sample/gpu/chunk.h"

namespace quire::gpu {

struct RandomWords {
  uint32_t word[4];
};

// sample/philox.h for several blocks at once. Rounds are a loop: code that runs once costs more to fetch than to run.
template <int kBlocks>
__device__ inline void philox(const SampleRow& row, const uint32_t (&blocks)[kBlocks], RandomWords (&words)[kBlocks]) {
  auto key0 = static_cast<uint32_t>(row.seed), key1 = static_cast<uint32_t>(row.seed >> 32);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) words[i] = {{blocks[i], row.position, row.choice, 0}};
#pragma unroll 2
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      uint32_t* c = words[i].word;
      const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
      c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ key0;
      c[1] = static_cast<uint32_t>(b);
      c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ key1;
      c[3] = static_cast<uint32_t>(a);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}
__device__ inline RandomWords philox(const SampleRow& row, uint32_t block) {
  const uint32_t blocks[1] = {block};
  RandomWords words[1];
  philox(row, blocks, words);
  return words[0];
}

// sample/gumbel.h
__device__ inline double exact_gumbel(uint32_t word) {
  const double upper_tail = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -log(-log1p(-upper_tail));
}

constexpr float kLn2 = 0.69314718f;
// A value that is this much below another in f32 is below it in f64 too. exact_gumbel() is met within 2e-5 (the fast
// logarithm's 4e-7 near 1, divided by a logarithm of at least 0.03), the sum rounds by 2e-6, and a logit that is taken
// relative to the best of its chunk by another 3e-6.
constexpr float kRaceWindow = 1e-4f;
// The best logit has at least -3.14, no noise is above 22.88: what is further below the best can't win.
constexpr float kHopeless = -26.1f;

// -log of the word's distance from u = 1: no smaller than its noise, and near it where that is large.
__device__ inline float gumbel_bound(uint32_t word) {
  return __fmaf_rn(fast_log2(static_cast<float>(word)), -kLn2, 32 * kLn2);
}
__device__ inline float fast_gumbel(uint32_t word) {
  const bool upper = word >= 0x80000000u;
  const float tail = static_cast<float>(upper ? ~word : word) * 0x1p-32f + 0x1p-33f;  // of u from 0 or 1, exact enough
  float minus_log_u = -__logf(upper ? tail : 1.0f - tail);
  if (!upper && tail < 0.03125f) {
    minus_log_u = tail * (1.0f + tail * (0.5f + tail * (1.0f / 3 + tail * (0.25f + tail * 0.2f))));
  }
  return -__logf(minus_log_u);
}

// What may win a row: its noise by fast_gumbel() and the word that it comes from.
struct Contender {
  float logit, fast_noise;
  uint32_t word;
  int32_t id;
};
constexpr int kContenders = 3;
// What a block says of its chunk.
struct alignas(16) ChunkRecord {
  Wide best;  // packed logit and id
  int32_t contenders, unused;
  Contender contender[kContenders];
};
static_assert(sizeof(ChunkRecord) == 64);

__device__ inline void store_record(ChunkRecord* to, const ChunkRecord& record) {
  const auto* from = reinterpret_cast<const uint4*>(&record);
#pragma unroll
  for (int i = 0; i < 4; ++i) reinterpret_cast<uint4*>(to)[i] = from[i];
}

__device__ inline ChunkRecord load_record(const ChunkRecord* from) {
  union {
    Wide words[sizeof(ChunkRecord) / sizeof(Wide)];
    ChunkRecord record;
  } copy;
#pragma unroll
  for (size_t i = 0; i < sizeof(ChunkRecord) / sizeof(Wide); ++i) {
    copy.words[i] = load_fresh(reinterpret_cast<const Wide*>(from) + i);
  }
  return copy.record;
}

struct RaceScratch {
  float best[kSampleWaves], bound[kSampleWaves];
  uint32_t leader;  // ordered bits
};

// v[quad * 4 + k], without an index into registers.
__device__ inline float of_quad(const float (&v)[kPerThread], int quad, int k) {
  const float low = (quad & 1) != 0 ? v[4 + k] : v[k];
  const float high = (quad & 1) != 0 ? v[12 + k] : v[8 + k];
  return (quad & 2) != 0 ? high : low;
}

// Finds what may win among the logits of the chunk; -inf can't. A logit counts as much as its distance from others
// times `factor`. Returns the largest logit, or NaN if there is one. More than kContenders within kRaceWindow of each
// other are so rare (1e-13 for a chunk) that the rest are left out. All threads of the block take part; the first one
// may read the record's contenders afterwards.
__device__ inline float race_chunk(const float (&v)[kPerThread], float factor, int first, const SampleRow& row,
                                   RaceScratch& scratch, ChunkRecord& record) {
  const int lane = static_cast<int>(threadIdx.x) % kWave, wave = static_cast<int>(threadIdx.x) / kWave;
  float highest = v[0];
  bool nan = false;
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) {
    highest = fmaxf(highest, v[e]);
    nan |= v[e] != v[e];
  }
  const float wave_highest = wave_max(highest);
  // No element of a quad has a larger value, relative to the wave's largest logit.
  float bounds[kQuads], wave_bound = -infinity();
#pragma unroll
  for (int quad = 0; quad < kQuads; quad += 2) {
    float largest = v[quad * 4];
#pragma unroll
    for (int k = 1; k < 8; ++k) largest = fmaxf(largest, v[quad * 4 + k]);
    bounds[quad] = bounds[quad + 1] = -infinity();
    if (!((largest - wave_highest) * factor >= kHopeless)) continue;
    const uint32_t blocks[2] = {static_cast<uint32_t>(quad_id(first, quad)) / 4,
                                static_cast<uint32_t>(quad_id(first, quad + 1)) / 4};
    RandomWords words[2];
    philox(row, blocks, words);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float noise = gumbel_bound(words[k / 4].word[k % 4]);
      float& own = bounds[quad + k / 4];
      own = fmaxf(own, __fmaf_rn(v[quad * 4 + k] - wave_highest, factor, noise));
    }
    wave_bound = fmaxf(wave_bound, fmaxf(bounds[quad], bounds[quad + 1]));
  }
  wave_bound = wave_max(wave_bound);
  if (lane == 0) {
    scratch.best[wave] = wave_highest;
    scratch.bound[wave] = wave_bound;
    if (wave == 0) scratch.leader = 0;
  }
  if (wave == 0 && lane == 0) record.contenders = 0;
  if (__syncthreads_or(nan ? 1 : 0) != 0) return __uint_as_float(0x7fffffff);
  float best = scratch.best[0];
#pragma unroll
  for (int i = 1; i < kSampleWaves; ++i) best = fmaxf(best, scratch.best[i]);
  if (!(fabsf(best) < infinity())) return best;
  float bound = -infinity();
#pragma unroll
  for (int i = 0; i < kSampleWaves; ++i) {
    bound = fmaxf(bound, __fmaf_rn(scratch.best[i] - best, factor, scratch.bound[i]));
  }

  // First the quad that has the largest bound is looked at: what its elements reach, others have to reach. Hardly ever
  // may an element of another one, so the code is short rather than fast.
  uint32_t leaders = 0;
  float own[kQuads];
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    own[quad] = __fmaf_rn(wave_highest - best, factor, bounds[quad]);
    if (own[quad] >= bound) leaders |= 1u << quad;
  }
  uint32_t quads = leaders;
  float threshold = -infinity();
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    while (quads != 0) {
      const int quad = __ffs(static_cast<int>(quads)) - 1;
      quads &= quads - 1;
      const RandomWords words = philox(row, static_cast<uint32_t>(quad_id(first, quad)) / 4);
      float values[4], noises[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        noises[k] = fast_gumbel(words.word[k]);
        values[k] = (of_quad(v, quad, k) - best) * factor + noises[k];
      }
      if (pass == 0) {
        const float leader = fmaxf(fmaxf(values[0], values[1]), fmaxf(values[2], values[3]));
        atomicMax(&scratch.leader, ordered_bits(leader));
        threshold = leader - kRaceWindow;
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (!(values[k] >= threshold)) continue;
        const int place = atomicAdd(&record.contenders, 1);
        if (place < kContenders) {
          record.contender[place] = {of_quad(v, quad, k), noises[k], words.word[k], quad_id(first, quad) + k};
        }
      }
    }
    __syncthreads();
    if (pass == 0) {
      threshold = from_ordered_bits(scratch.leader) - kRaceWindow;
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        if (own[quad] >= threshold - kRaceWindow && (leaders >> quad & 1u) == 0) quads |= 1u << quad;
      }
    }
  }
  return best;
}

// The largest value of the wave's lanes, the lowest id on ties; every lane gets it.
__device__ inline void wave_leader(double& value, int32_t& id) {
#pragma unroll
  for (int mask = kWave / 2; mask > 0; mask /= 2) {
    const double other = shuffle_xor(value, mask);
    const int32_t other_id = shuffle_xor(id, mask);
    if (other > value || (other == value && other_id < id)) value = other, id = other_id;
  }
}

// The best logit of a row of `chunks` chunks, by the lanes of one wave. Every lane gets it.
__device__ inline Wide wave_best(const ChunkRecord* records, int chunks) {
  Wide best = 0;
  for (int i = static_cast<int>(threadIdx.x) % kWave; i < chunks; i += kWave) {
    best = larger(best, load_fresh(&records[i].best));
  }
  return wave_largest(best);
}
__device__ inline bool can_choose(Wide best) { return fabsf(packed_logit(best)) < infinity(); }

// The winner of a row's race, by one wave; -1 if none can be chosen. Every lane gets it. `reference`: what logits are
// relative to; NaN: the row's best.
__device__ inline int32_t wave_winner(const ChunkRecord* records, int chunks, float reference, float factor) {
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  ChunkRecord record = load_record(records + min(lane, chunks - 1));
  if (reference != reference) {
    Wide best = record.best;
    for (int i = lane + kWave; i < chunks; i += kWave) best = larger(best, load_fresh(&records[i].best));
    best = wave_largest(best);
    if (!can_choose(best)) return -1;
    reference = packed_logit(best);
  }
  // fn(contender, tempered logit, fast value)
  const auto for_each = [&](auto&& fn) {
    for (int i = lane; i < chunks; i += kWave) {
      if (chunks > kWave) record = load_record(records + i);
#pragma unroll
      for (int k = 0; k < kContenders; ++k) {
        if (k >= record.contenders) continue;
        const float logit = (record.contender[k].logit - reference) * factor;
        fn(record.contender[k], logit, logit + record.contender[k].fast_noise);
      }
    }
  };
  float leader = -infinity();
  for_each([&](const Contender&, float, float fast) { leader = fmaxf(leader, fast); });
  const float threshold = wave_max(leader) - kRaceWindow;
  int close = 0;
  int32_t winner = -1;
  for_each([&](const Contender& contender, float, float fast) {
    if (fast >= threshold) ++close, winner = contender.id;
  });
  if (wave_total(close) == 1) return wave_largest(winner);
  double highest = -INFINITY;
  winner = 0x7fffffff;
  for_each([&](const Contender& contender, float logit, float fast) {
    if (fast < threshold) return;
    const double value = static_cast<double>(logit) + exact_gumbel(contender.word);
    if (value > highest || (value == highest && contender.id < winner)) highest = value, winner = contender.id;
  });
  wave_leader(highest, winner);
  return winner;
}

// One lane of each of `blocks` blocks calls it after it has written; true for the last one, which then sees what all
// wrote. Leaves the counter at 0.
__device__ inline bool last_of(uint32_t* counter, int blocks) {
  device_fence();
  const bool last = atomicAdd(counter, 1u) == static_cast<uint32_t>(blocks) - 1;
  if (last) {
    device_fence();
    *counter = 0;
  }
  return last;
}

__device__ inline void write_token(const SampleArgs& args, int row, int32_t token) {
  args.results[row] = {token, 0.0f, 0};
  args.sampled[row] = token;
}

}  // namespace quire::gpu
