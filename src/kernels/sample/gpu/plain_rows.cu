// Rows without rules or cuts: greedy, or a race over all logits. A block looks at its chunk once; the last block of a
// row compares what the blocks found.
#include "kernels/sample/gpu/internal.h"

namespace quire::gpu {
namespace {

// kRace: the rows with a temperature, else the greedy ones. `mixed`: there are rows of other kinds, too.
template <bool kRace>
__global__ void __launch_bounds__(kSampleThreads, kRace ? 3 : 4)
    plain_rows(SampleArgs args, SampleMemory memory, bool mixed) {
  __shared__ Wide scratch[kWave];
  __shared__ RaceScratch race;
  __shared__ ChunkRecord record;
  const int index = static_cast<int>(blockIdx.y), chunks = static_cast<int>(gridDim.x);
  const int first = static_cast<int>(blockIdx.x) * kChunk, lane = static_cast<int>(threadIdx.x) % kWave;
  const SampleRow row = args.params[index];
  if (mixed && row.kind != (kRace ? SampleKind::kRace : SampleKind::kGreedy)) return;
  if (!kRace && row.given_token >= 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) write_token(args, index, row.given_token);
    return;
  }
  float v[kPerThread];
  load_chunk(args.logits + index * args.row_stride, first, args.vocab, v);
  ChunkRecord* records = memory.records + static_cast<int64_t>(index) * chunks;
  Wide best = 0;
  if constexpr (kRace) {
    const float highest = race_chunk(v, row.inverse_temperature, first, row, race, record);
    if (threadIdx.x >= kWave) return;
    best = highest != highest ? ~Wide{0} : pack(highest, 0);
  } else {
    best = wave_largest(thread_best(v, first));
    if (lane == 0) scratch[threadIdx.x / kWave] = best;
    __syncthreads();
    if (threadIdx.x >= kWave) return;
    best = wave_largest(lane < kSampleWaves ? scratch[lane] : 0);
  }
  int last = 0;
  if (lane == 0) {
    if constexpr (kRace) {
      record.best = best;
      store_record(records + blockIdx.x, record);
    } else {
      records[blockIdx.x].best = best;
    }
    last = last_of(&memory.rows[index].finished, chunks) ? 1 : 0;
  }
  if (shuffle(last, 0) == 0) return;
  int32_t token = -1;
  if constexpr (kRace) {
    token = wave_winner(records, chunks, __uint_as_float(0x7fffffff), row.inverse_temperature);
  } else {
    best = wave_best(records, chunks);
    if (can_choose(best)) token = packed_id(best);
  }
  if (lane == 0) write_token(args, index, token);
}

}  // namespace

void choose_plain_rows(const SampleArgs& args, const SampleMemory& memory, Stream& stream) {
  const dim3 grid(static_cast<unsigned>(chunks_of(args.vocab)), static_cast<unsigned>(args.rows));
  const bool mixed = args.any_greedy + args.any_race + args.any_short + args.any_long > 1;
  if (args.any_greedy) launch(stream, plain_rows<false>, grid, dim3(kSampleThreads), 0, args, memory, mixed);
  if (args.any_race) launch(stream, plain_rows<true>, grid, dim3(kSampleThreads), 0, args, memory, mixed);
}

}  // namespace quire::gpu
