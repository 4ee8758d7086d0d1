// Log-probabilities of raw logits: that of a row's token with its rank, and the best.
#include "kernels/sample/gpu/group.h"
#include "kernels/sample/gpu/head.h"

namespace quire::gpu {
namespace {

__device__ inline float logprob_of(float logit, double log_sum) {
  const double value = static_cast<double>(logit) - log_sum;
  return value == value ? static_cast<float>(value) : -infinity();
}

// log of the sum of exp over the row, by the lanes of one wave; NaN if there is an infinity or nothing finite. `best`
// and `above` are the row's.
__device__ inline double fold_records(const LogprobRecord* records, int chunks, float& best, int& above) {
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  best = -infinity();
  above = 0;
  for (int i = lane; i < chunks; i += kWave) {
    best = fmaxf(best, load_fresh(&records[i].best));
    above += load_fresh(&records[i].above);
  }
  best = wave_max(best);
  above = wave_total(above);
  double sum = 0;
  for (int i = lane; i < chunks; i += kWave) {
    sum += load_fresh(&records[i].sum) * exp(static_cast<double>(load_fresh(&records[i].best)) - best);
  }
  return log(wave_total(sum)) + best;
}

// Replaces NaN by -inf and writes the chunk's record, by thread 0. Returns its largest logit.
__device__ inline float describe_chunk(float (&v)[kPerThread], float own, int first, Wide* waves,
                                       LogprobRecord& record) {
  int above = 0;
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) {
    if (v[e] != v[e]) v[e] = -infinity();
    above += v[e] > own ? 1 : 0;
  }
  const float best = packed_logit(block_largest(thread_best(v, first), waves));
  float sum = 0;
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) sum += v[e] > -infinity() ? expf(v[e] - best) : 0.0f;
  const double block_sum = block_total(static_cast<double>(sum), reinterpret_cast<double*>(waves));
  above = block_total(above, reinterpret_cast<int*>(waves));
  if (threadIdx.x == 0) record = {block_sum, best, above};
  return best;
}

// The bits of the thread's elements that are in the row.
__device__ inline uint32_t inside(int first, int vocab) {
  uint32_t bits = 0;
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) {
    if (id_of(first, e) < vocab) bits |= 1u << e;
  }
  return bits;
}

// Rows that want few.
__global__ void __launch_bounds__(kSampleThreads, 2) short_logprobs(SampleArgs args, SampleMemory memory) {
  __shared__ HeadScratch scratch;
  __shared__ Wide waves[kSampleWaves];
  __shared__ double shared_log_sum;
  __shared__ float shared_best;
  __shared__ int last;
  const int index = static_cast<int>(blockIdx.y), chunks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x), first = block * kChunk, thread = static_cast<int>(threadIdx.x);
  const int32_t token = args.results[index].token;
  const int32_t wanted = min(args.params[index].logprobs, args.vocab);
  if (wanted < 0 || token < 0 || !wants_short_head(wanted, args.vocab)) return;
  const float* logits = args.logits + index * args.row_stride;
  const int64_t slot = static_cast<int64_t>(index) * chunks;
  LogprobRecord* records = memory.logprob_records + slot;
  uint32_t* counts = memory.head_counts + slot;
  Wide* heads = memory.heads + slot * kSlots;
  const float own = logits[token];
  float v[kPerThread];
  load_chunk(logits, first, args.vocab, v);
  const float chunk_best = describe_chunk(v, own, first, waves, records[block]);
  if (wanted > 0) {
    publish_head(v, first, inside(first, args.vocab), chunk_best, static_cast<uint32_t>(wanted), scratch,
                 heads + block * kSlots, counts[block]);
  }
  if (thread == 0) last = last_of(&memory.rows[index].finished, chunks) ? 1 : 0;
  __syncthreads();
  if (last == 0) return;
  if (thread < kWave) {
    int above = 0;
    float best = 0;
    const double log_sum = fold_records(records, chunks, best, above);
    if (thread == 0) {
      shared_log_sum = log_sum;
      shared_best = best;
      args.results[index] = {token, logprob_of(own, log_sum), above + 1};
    }
  }
  if (wanted == 0) return;
  __syncthreads();
  merge_heads(heads, counts, chunks, 0.0f, 1.0f, -infinity(), shared_best, static_cast<uint32_t>(wanted), scratch);
  if (thread < wanted) {
    const int64_t to = static_cast<int64_t>(index) * args.max_logprobs + thread;
    args.top_ids[to] = packed_id(scratch.sorted[thread]);
    args.top_logprobs[to] = logprob_of(packed_logit(scratch.sorted[thread]), shared_log_sum);
  }
}

// Rows that want more, up to all.
__global__ void __launch_bounds__(kSampleThreads, 2) long_logprobs(SampleArgs args, SampleMemory memory, int chunks) {
  __shared__ SelectScratch select;
  __shared__ Wide waves[kSampleWaves];
  __shared__ double shared_log_sum;
  __shared__ float shared_best;
  const int groups = static_cast<int>(gridDim.x) / chunks, of = static_cast<int>(blockIdx.x) / chunks;
  const int block = static_cast<int>(blockIdx.x) % chunks, first = block * kChunk;
  Group group(memory.groups + of, memory.histograms + of * 3, chunks, block);
  for (int index = of; index < args.rows; index += groups) {
    const int32_t token = args.results[index].token;
    const int32_t wanted = min(args.params[index].logprobs, args.vocab);
    if (wanted < 0 || token < 0 || wants_short_head(wanted, args.vocab)) continue;
    const float* logits = args.logits + index * args.row_stride;
    LogprobRecord* records = memory.logprob_records + static_cast<int64_t>(index) * chunks;
    const float own = logits[token];
    float v[kPerThread];
    load_chunk(logits, first, args.vocab, v);
    (void)describe_chunk(v, own, first, waves, records[block]);
    group.wait_for_all();
    if (threadIdx.x < kWave) {
      int above = 0;
      float best = 0;
      const double sum = fold_records(records, chunks, best, above);
      if (threadIdx.x == 0) {
        shared_log_sum = sum;
        shared_best = best;
        if (block == 0) args.results[index] = {token, logprob_of(own, sum), above + 1};
      }
    }
    __syncthreads();
    const double log_sum = shared_log_sum;

    uint32_t kept = inside(first, args.vocab);
    const auto id = [&](int e) { return id_of(first, e); };
    keep_head<false>(v, id, shared_best, wanted, static_cast<uint32_t>(wanted), 0.0, group, select, kept);
    Wide* gathered = memory.gathered + static_cast<int64_t>(of) * args.vocab;
    uint32_t* counter = &memory.rows[index].gathered;
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) {
      if ((kept >> e & 1u) != 0) gathered[atomicAdd(counter, 1u)] = pack(v[e], id_of(first, e));
    }
    group.wait_for_all();
    if (block == 0 && threadIdx.x == 0) *counter = 0;
    // All are different: an element's place is the number of better ones.
    for (int i = block * kSampleThreads + static_cast<int>(threadIdx.x); i < wanted; i += chunks * kSampleThreads) {
      const Wide element = load_fresh(gathered + i);
      int place = 0;
      for (int j = 0; j < wanted; ++j) place += load_fresh(gathered + j) > element ? 1 : 0;
      const int64_t to = static_cast<int64_t>(index) * args.max_logprobs + place;
      args.top_ids[to] = packed_id(element);
      args.top_logprobs[to] = logprob_of(packed_logit(element), log_sum);
    }
  }
  group.leave();
}

}  // namespace

void compute_short_logprobs(const SampleArgs& args, const SampleMemory& memory, Stream& stream) {
  launch(stream, short_logprobs, dim3(static_cast<unsigned>(chunks_of(args.vocab)), static_cast<unsigned>(args.rows)),
         dim3(kSampleThreads), 0, args, memory);
}

int long_logprobs_per_multiprocessor() { return blocks_per_multiprocessor(long_logprobs, kSampleThreads); }

void compute_long_logprobs(const SampleArgs& args, const SampleMemory& memory, int groups, Stream& stream) {
  const int chunks = chunks_of(args.vocab);
  launch(stream, long_logprobs, dim3(static_cast<unsigned>(groups * chunks)), dim3(kSampleThreads), 0, args, memory,
         chunks);
}

}  // namespace quire::gpu
