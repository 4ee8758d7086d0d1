#pragma once
// What the sampler on the GPU (kernels/sample/gpu/sample.h) is told of each row, and what it answers. Plain C++: a
// build without a GPU has it too.
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/sample/gpu/sample.h"
#include "sample/sampler.h"

namespace quire {

// Memory that rows are written to, of fixed size: a part of a step's staging buffer.
struct GpuRowBuffers {
  std::span<gpu::SampleRow> rows;
  std::span<int32_t> tokens, ids, bias_ids;  // as in gpu::SampleArgs
  std::span<float> bias_values;              // as long as bias_ids
};

// Elements of the buffers.
struct GpuRowSizes {
  size_t rows = 0, tokens = 0, ids = 0, biases = 0;
  GpuRowSizes& operator+=(const GpuRowSizes& other);
};

// Whether the next token depends on which tokens came before, other than through the model.
bool needs_output(const SamplingParams& params);

// No row like this one needs more: as long as its sequence has at most `max_tokens` tokens.
GpuRowSizes most_of_row(const SamplingParams& params, size_t max_tokens, size_t stop_ids);

class GpuRowWriter {
 public:
  GpuRowWriter(const GpuRowBuffers& buffers, int32_t vocab) : buffers_(buffers), vocab_(vocab) {}

  void clear();
  // Appends a row for sample(logits, input). False: the buffers have no room or the row is one for the host
  // (logprob_token_ids), nothing has changed. Bad words become masked ids here. Ids are below vocab (engine/admission
  // has checked them).
  bool add(const SampleInput& input);
  // Appends a row for token_logprobs(logits, token, n): nothing is chosen.
  bool add_given(int32_t token, int32_t n);

  const GpuRowSizes& used() const { return used_; }
  // Sets what gpu::SampleArgs says of all rows: rows, vocab, any_... and max_logprobs.
  void describe(gpu::SampleArgs& args) const;

 private:
  bool has_room(const GpuRowSizes& more) const;
  void note(const gpu::SampleRow& row);

  GpuRowBuffers buffers_;
  int32_t vocab_;
  GpuRowSizes used_;
  bool any_greedy_ = false, any_race_ = false, any_short_ = false, any_long_ = false, any_logprobs_ = false;
  int32_t max_logprobs_ = 0;
};

// The answer for a row. top_ids and top_logprobs: the row's part of what gpu::SampleArgs names so, on the host.
SampleResult gpu_sample_result(const gpu::SampleRow& row, const gpu::SampleResultRow& result,
                               std::span<const int32_t> top_ids, std::span<const float> top_logprobs);

}  // namespace quire
