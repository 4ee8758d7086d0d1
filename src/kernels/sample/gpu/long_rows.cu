// Rows that are cut by top_p or min_p, or by a large top_k. The blocks of a row keep their logits in registers while
// they find the best one together, then what the cuts leave, then who wins the race.
#include "kernels/sample/gpu/group.h"
#include "kernels/sample/gpu/rules.h"

namespace quire::gpu {
namespace {

union LongScratch {
  RulesScratch rules;
  SelectScratch select;
};

__global__ void __launch_bounds__(kSampleThreads, 2) long_rows(SampleArgs args, SampleMemory memory, int chunks) {
  __shared__ LongScratch scratch;
  __shared__ Wide waves[kSampleWaves];
  __shared__ RaceScratch race;
  __shared__ ChunkRecord record;
  __shared__ Wide shared_best;
  __shared__ double shared_mass;
  const int groups = static_cast<int>(gridDim.x) / chunks, of = static_cast<int>(blockIdx.x) / chunks;
  const int block = static_cast<int>(blockIdx.x) % chunks, first = block * kChunk;
  const bool leader = block == 0 && threadIdx.x == 0;
  Group group(memory.groups + of, memory.histograms + of * 3, chunks, block);
  for (int index = of; index < args.rows; index += groups) {
    const SampleRow row = args.params[index];
    if (row.kind != SampleKind::kLong) continue;
    ChunkRecord* records = memory.records + static_cast<int64_t>(index) * chunks;
    float v[kPerThread];
    load_chunk(args.logits + index * args.row_stride, first, args.vocab, v);
    apply_rules(args, row, first, v, scratch.rules);
    const Wide chunk_best = block_largest(thread_best(v, first), waves);
    if (threadIdx.x == 0) records[block].best = chunk_best;
    // top_p of all that have a chance: their mass is known as soon as the best one is.
    const bool whole_mass = row.top_p < 1 && row.top_k == 0 && row.log_min_p == -infinity();
    LogprobRecord* masses = memory.logprob_records + static_cast<int64_t>(index) * chunks;
    if (whole_mass) {
      const float highest = packed_logit(chunk_best);
      float sum = 0;
#pragma unroll
      for (int e = 0; e < kPerThread; ++e) {
        sum += v[e] > -infinity() ? expf((v[e] - highest) * row.inverse_temperature) : 0.0f;
      }
      const double block_sum = block_total(static_cast<double>(sum), reinterpret_cast<double*>(waves));
      if (threadIdx.x == 0) masses[block].sum = block_sum;
    }
    group.wait_for_all();
    if (threadIdx.x < kWave) {
      const Wide best = wave_best(records, chunks);
      double mass = 0;
      for (int i = static_cast<int>(threadIdx.x); whole_mass && i < chunks; i += kWave) {
        const double below = static_cast<double>(packed_logit(load_fresh(&records[i].best))) - packed_logit(best);
        mass += load_fresh(&masses[i].sum) * exp(below * row.inverse_temperature);
      }
      mass = wave_total(mass);
      if (threadIdx.x == 0) shared_best = best, shared_mass = mass;
    }
    __syncthreads();
    const Wide best = shared_best;
    const bool possible = can_choose(best);
    if (!possible || row.inverse_temperature == 0) {
      if (leader) write_token(args, index, possible ? packed_id(best) : -1);
      continue;
    }
    const float highest = packed_logit(best), floor = fmaxf(row.log_min_p, -3.402823466e38f);
    uint32_t kept = 0;
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) {
      v[e] = (v[e] - highest) * row.inverse_temperature;
      if (v[e] >= floor) kept |= 1u << e;
    }
    const auto id = [&](int e) { return id_of(first, e); };
    if (row.top_k > 0) {
      const auto most = static_cast<uint32_t>(row.top_k);
      keep_head<false>(v, id, 0.0f, row.top_k, most, 0.0, group, scratch.select, kept);
    }
    if (row.top_p < 1) {
      const double total = whole_mass ? shared_mass : 0;
      if (whole_mass) {
        // What is below this weighs less together than what top_p leaves out.
        const auto bound = static_cast<float>(log((1 - row.top_p) * total / args.vocab)) - 0.01f;
#pragma unroll
        for (int e = 0; e < kPerThread; ++e) {
          if (v[e] < bound) kept &= ~(1u << e);
        }
      }
      keep_head<true>(v, id, 0.0f, row.top_p, 0, total, group, scratch.select, kept);
    }
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) {
      if ((kept >> e & 1u) == 0) v[e] = -infinity();
    }
    (void)race_chunk(v, 1.0f, first, row, race, record);
    if (threadIdx.x < kWave) {
      int last = 0;
      if (threadIdx.x == 0) {
        record.best = chunk_best;
        store_record(records + block, record);
        last = last_of(&memory.rows[index].finished, chunks) ? 1 : 0;
      }
      if (shuffle(last, 0) != 0) {
        const int32_t token = wave_winner(records, chunks, 0.0f, 1.0f);
        if (threadIdx.x == 0) write_token(args, index, token);
      }
    }
  }
  group.leave();
}

}  // namespace

int long_rows_per_multiprocessor() { return blocks_per_multiprocessor(long_rows, kSampleThreads); }

void choose_long_rows(const SampleArgs& args, const SampleMemory& memory, int groups, Stream& stream) {
  const int chunks = chunks_of(args.vocab);
  launch(stream, long_rows, dim3(static_cast<unsigned>(groups * chunks)), dim3(kSampleThreads), 0, args, memory,
         chunks);
}

}  // namespace quire::gpu
