#pragma once
// The requests of one row of `quire bench attention`: their batch in scattered blocks, and how much work it is.
#include <cstdint>
#include <vector>

#include "attention/backend.h"
#include "bench/attention_rows.h"

namespace quire {

// What a step has to do at least: read the keys and values that its queries see once for each request, and two
// multiply-adds for each element of K and of V that a query head meets.
struct AttentionWork {
  int64_t requests = 0, tokens = 0;  // tokens: new ones
  int64_t kv_tokens = 0;             // keys that the requests' queries see, each once
  double kv_bytes = 0;               // of one layer
  double flop = 0;
};
AttentionWork attention_work(const AttentionRow& row);

int64_t step_blocks(const AttentionRow& row);  // of the cache, that its requests fill

// The batch and the host memory that it views.
class StepBatch {
 public:
  explicit StepBatch(const AttentionRow& row);
  StepBatch(const StepBatch&) = delete;
  StepBatch& operator=(const StepBatch&) = delete;

  const AttentionBatch& view() const { return batch_; }
  int32_t requests() const { return static_cast<int32_t>(kv_lens_.size()); }
  int32_t tokens() const { return offsets_.back(); }
  int32_t query_len(int64_t request) const {
    return offsets_[static_cast<size_t>(request) + 1] - offsets_[static_cast<size_t>(request)];
  }
  int32_t kv_len(int64_t request) const { return kv_lens_[static_cast<size_t>(request)]; }
  int64_t request_of(int32_t token) const;
  const int32_t* table(int64_t request) const { return tables_.data() + request * batch_.block_table_stride; }

 private:
  std::vector<int32_t> offsets_, kv_lens_, tables_, table_rows_;
  std::vector<int64_t> slots_;
  AttentionBatch batch_;
};

// Caches to visit in turn: `layers`, or, if that is 0, enough for the keys and values that are read in all of them to
// exceed 2 * last_cache_bytes, at most 32.
int32_t layers_to_visit(int32_t layers, double kv_bytes, int64_t last_cache_bytes);

// Throws Error(kResourceExhausted) naming the row and the bytes if caches, queries and outputs, element_bytes each,
// don't fit in what is available.
void check_step_memory(const AttentionRow& row, int64_t layers, int64_t blocks, int64_t tokens, int64_t element_bytes,
                       int64_t available);

}  // namespace quire
