#pragma once
// Chooses a token for each row of logits on the GPU, as sample/sampler.h does on the CPU: the same rules in the same
// order, the same random numbers (Philox4x32-10, Gumbel-max, lowest id on ties). What is chosen for a row does not
// depend on the other rows, and sums have a fixed order.
#include <cstddef>
#include <cstdint>

#include "gpu/stream.h"

namespace quire::gpu {

enum class SampleKind : int32_t {
  kGreedy,  // no rules; cuts make no difference
  kRace,    // a temperature, neither rules nor cuts
  kShort,   // rules, or a temperature and a top_k that is_short_head()
  kLong,    // other cuts, or min_p
};
// A row's best few, for top_k or for log-probabilities, are found faster if they are no more than this.
constexpr int32_t kShortHead = 128, kShortVocab = 262144;
constexpr bool is_short_head(int32_t count, int32_t vocab) { return count <= kShortHead && vocab <= kShortVocab; }

// What one row wants. Lives in the step's staging buffer. The defaults: the best token, without log-probabilities.
struct SampleRow {
  uint64_t seed = 0;
  double top_p = 1;  // >= 1 = off
  double frequency_penalty = 0, presence_penalty = 0;
  uint32_t choice = 0, position = 0;  // of the Philox stream
  int32_t given_token = -1;           // >= 0: nothing is chosen, this token's log-probability is wanted
  SampleKind kind = SampleKind::kGreedy;
  float inverse_temperature = 0;        // 0 = greedy
  float log_min_p = -__builtin_inff();  // -inf = off
  int32_t top_k = 0;                    // below vocab; 0 = off
  int32_t logprobs = -1;                // -1 = none wanted, else how many of the best
  float repetition_penalty = 1;         // 1 = off
  // Token ids that have counts: prompt_tokens from tokens_begin on are of the prompt, then output_tokens of the output,
  // in SampleArgs::tokens. 0 where no penalty is on.
  int32_t tokens_begin = 0, prompt_tokens = 0, output_tokens = 0;
  int32_t allowed_begin = 0, allowed = 0;  // ids that alone are allowed, in SampleArgs::ids; 0 = all
  int32_t masked_begin = 0, masked = 0;    // ids whose logit becomes -inf, in SampleArgs::ids
  int32_t bias_begin = 0, biases = 0;      // in SampleArgs::bias_ids and bias_values
};

struct SampleResultRow {
  int32_t token;  // -1: no finite logit, or NaN
  // Of the raw logits, before any rule; where wanted and there is a token. A NaN counts as -inf.
  float logprob;
  int32_t rank;  // strictly larger logits + 1
};

// All pointers are of device memory.
struct SampleArgs {
  const float* logits = nullptr;  // [rows, vocab]
  int32_t rows = 0, vocab = 0;
  int64_t row_stride = 0;
  const SampleRow* params = nullptr;  // [rows]
  const int32_t* tokens = nullptr;
  const int32_t* ids = nullptr;
  const int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;
  // What there is among the rows; kernels for the rest are not launched.
  bool any_greedy = false, any_race = false, any_short = false, any_long = false, any_logprobs = false;
  int32_t max_logprobs = 0;            // most of any row, at most vocab
  int32_t* sampled = nullptr;          // [rows]: the tokens, for the next step
  SampleResultRow* results = nullptr;  // [rows]
  int32_t* top_ids = nullptr;          // [rows, max_logprobs], best first, ties to the lower id
  float* top_logprobs = nullptr;       // the same
};

// Counters that are zero between calls: Stream::zero() once, before the first call. For one stream at a time.
size_t sample_state_bytes(int32_t max_rows);
// workspace: 256-byte aligned; may hold anything.
size_t sample_workspace_bytes(int32_t max_rows, int32_t vocab);

// One launch for each kind of rows that there is and one or two for log-probabilities. Each reads its rows' logits
// once. Throws Error(kInvalidArgument) if a row is larger than the device can hold at once (millions of logits).
void sample_rows(const SampleArgs& args, void* state, void* workspace, Stream& stream);

}  // namespace quire::gpu
