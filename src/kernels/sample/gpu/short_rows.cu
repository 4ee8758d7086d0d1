// Rows with rules, or with a small top_k. A block looks at its chunk once; the last block of a row chooses among what
// the blocks found.
#include "kernels/sample/gpu/head.h"
#include "kernels/sample/gpu/rules.h"

namespace quire::gpu {
namespace {

union ShortScratch {
  RulesScratch rules;
  HeadScratch head;
};

// The winner among scratch.sorted[0, count), tempered logits whose best is 0, after top_p. sums [kSampleWaves]. Every
// thread of the block gets it.
__device__ inline int32_t race_head(const SampleRow& row, int count, HeadScratch& scratch, double* sums) {
  static_assert(kShortHead <= kSampleThreads);
  const int thread = static_cast<int>(threadIdx.x);
  double value = -INFINITY;
  int32_t id = 0x7fffffff;
  const Wide own = scratch.sorted[min(thread, count - 1)];
  bool kept = thread < count;
  if (row.top_p < 1) {
    const double mass = kept ? static_cast<double>(expf(packed_logit(own))) : 0;
    double sum = mass;
#pragma unroll
    for (int distance = 1; distance < kWave; distance *= 2) {
      const double other = shuffle(sum, (thread - distance) & (kWave - 1));
      if (thread % kWave >= distance) sum += other;
    }
    if (thread % kWave == kWave - 1) sums[thread / kWave] = sum;
    __syncthreads();
    double before = sum - mass, total = 0;
#pragma unroll
    for (int i = 0; i < kSampleWaves; ++i) {
      if (i < thread / kWave) before += sums[i];
      total += sums[i];
    }
    constexpr double kRounding = 1e-6;  // as sample/selection.cc
    kept &= thread == 0 || before < row.top_p * total * (1.0 - kRounding);
  }
  if (kept) {
    id = packed_id(own);
    const RandomWords words = philox(row, static_cast<uint32_t>(id) / 4);
    const uint32_t low = (id & 1) != 0 ? words.word[1] : words.word[0];
    const uint32_t high = (id & 1) != 0 ? words.word[3] : words.word[2];
    value = static_cast<double>(packed_logit(own)) + exact_gumbel((id & 2) != 0 ? high : low);
  }
  wave_leader(value, id);
  __syncthreads();
  auto* values = reinterpret_cast<double*>(scratch.found);
  auto* ids = reinterpret_cast<int32_t*>(scratch.found + kWave);
  if (thread % kWave == 0) values[thread / kWave] = value, ids[thread / kWave] = id;
  __syncthreads();
  value = values[0], id = ids[0];
#pragma unroll
  for (int i = 1; i < kSampleWaves; ++i) {
    if (values[i] > value || (values[i] == value && ids[i] < id)) value = values[i], id = ids[i];
  }
  return id;
}

__global__ void __launch_bounds__(kSampleThreads, 2) short_rows(SampleArgs args, SampleMemory memory) {
  __shared__ ShortScratch scratch;
  __shared__ Wide waves[kSampleWaves];
  __shared__ RaceScratch race;
  __shared__ ChunkRecord record;
  __shared__ int last;
  __shared__ Wide shared_best;
  const int index = static_cast<int>(blockIdx.y), chunks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x), first = block * kChunk, thread = static_cast<int>(threadIdx.x);
  const SampleRow row = args.params[index];
  if (row.kind != SampleKind::kShort) return;
  float v[kPerThread];
  load_chunk(args.logits + index * args.row_stride, first, args.vocab, v);
  apply_rules(args, row, first, v, scratch.rules);
  const int64_t slot = static_cast<int64_t>(index) * chunks;
  ChunkRecord* records = memory.records + slot;
  uint32_t* counts = memory.head_counts + slot;
  Wide* heads = memory.heads + slot * kSlots;
  const bool greedy = row.inverse_temperature == 0, by_count = !greedy && row.top_k > 0;
  if (!greedy && !by_count) {
    const float highest = race_chunk(v, row.inverse_temperature, first, row, race, record);
    if (thread == 0) record.best = highest != highest ? ~Wide{0} : pack(highest, 0);
  } else {
    const Wide best = block_largest(thread_best(v, first), waves);
    if (by_count && best != ~Wide{0}) {
      uint32_t kept = 0;
#pragma unroll
      for (int e = 0; e < kPerThread; ++e) kept |= v[e] > -infinity() ? 1u << e : 0u;
      publish_head(v, first, kept, packed_logit(best), static_cast<uint32_t>(row.top_k), scratch.head,
                   heads + block * kSlots, counts[block]);
    }
    if (thread == 0) record.best = best;
  }
  if (thread == 0) {
    store_record(records + block, record);
    last = last_of(&memory.rows[index].finished, chunks) ? 1 : 0;
  }
  __syncthreads();
  if (last == 0) return;
  if (!by_count) {
    if (thread >= kWave) return;
    int32_t token = -1;
    if (greedy) {
      const Wide best = wave_best(records, chunks);
      if (can_choose(best)) token = packed_id(best);
    } else {
      token = wave_winner(records, chunks, __uint_as_float(0x7fffffff), row.inverse_temperature);
    }
    if (thread == 0) write_token(args, index, token);
    return;
  }
  if (thread < kWave) {
    const Wide best = wave_best(records, chunks);
    if (thread == 0) shared_best = best;
  }
  __syncthreads();
  if (!can_choose(shared_best)) {
    if (thread == 0) write_token(args, index, -1);
    return;
  }
  const int count =
      merge_heads(heads, counts, chunks, packed_logit(shared_best), row.inverse_temperature,
                  fmaxf(row.log_min_p, -3.402823466e38f), 0.0f, static_cast<uint32_t>(row.top_k), scratch.head);
  const int32_t token = race_head(row, count, scratch.head, reinterpret_cast<double*>(waves));
  if (thread == 0) write_token(args, index, token);
}

}  // namespace

void choose_short_rows(const SampleArgs& args, const SampleMemory& memory, Stream& stream) {
  launch(stream, short_rows, dim3(static_cast<unsigned>(chunks_of(args.vocab)), static_cast<unsigned>(args.rows)),
         dim3(kSampleThreads), 0, args, memory);
}

}  // namespace quire::gpu
