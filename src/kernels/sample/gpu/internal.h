#pragma once
// The kernels behind sample_rows() and the memory that they share. Included by GPU sources only.
#include "kernels/sample/gpu/race.h"

namespace quire::gpu {

constexpr int kMaxGroups = 512;
constexpr int kBins = 2048;
constexpr int kSlots = 256;  // that a chunk has for the best of its logits, where the row wants kShortHead at most
constexpr int kShortChunks = kShortVocab / kChunk;
static_assert(kShortChunks * kSlots <= kChunk);  // one block takes up the slots of all

// Zero between calls. Groups come first: where they lie doesn't depend on the number of rows.
struct GroupState {
  uint32_t arrived, finished, unused[30];  // a cache line for each
};
struct RowState {
  uint32_t finished, gathered;
};

struct Histogram {
  Wide masses[kBins];
  uint32_t counts[kBins];
};
struct LogprobRecord {
  double sum;  // of exp(x - best)
  float best;
  int32_t above;  // logits larger than the token's
};

struct SampleMemory {
  GroupState* groups;
  RowState* rows;
  ChunkRecord* records;            // [rows, chunks]
  LogprobRecord* logprob_records;  // [rows, chunks]
  uint32_t* head_counts;           // [rows, chunks]
  Wide* heads;                     // [rows, chunks, kSlots]: packed
  Histogram* histograms;           // [groups, 3]
  Wide* gathered;                  // [groups, vocab]
};

__device__ inline bool wants_short_head(int32_t count, int32_t vocab) {
  return count <= kShortHead && vocab <= kShortVocab;
}

// Groups of chunks_of(vocab) blocks that are on the device at once, so that they may wait for each other.
int resident_groups(int32_t rows, int32_t vocab);

void choose_plain_rows(const SampleArgs& args, const SampleMemory& memory, Stream& stream);
void choose_short_rows(const SampleArgs& args, const SampleMemory& memory, Stream& stream);
void choose_long_rows(const SampleArgs& args, const SampleMemory& memory, int groups, Stream& stream);
void compute_short_logprobs(const SampleArgs& args, const SampleMemory& memory, Stream& stream);
int long_rows_per_multiprocessor();  // blocks that are there at once
int long_logprobs_per_multiprocessor();
void compute_long_logprobs(const SampleArgs& args, const SampleMemory& memory, int groups, Stream& stream);

}  // namespace quire::gpu
