#pragma once
// One row of `quire bench attention` in memory: caches with random keys and values in scattered blocks, queries, the
// batch, and how much work attention over it is.
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/backend.h"
#include "base/thread_pool.h"
#include "bench/attention_rows.h"
#include "engine/kv_cache.h"

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

class AttentionStep {
 public:
  // layers: 0 = enough for the keys and values that are read in all of them to exceed 2 * l3_bytes, at most 32. Throws
  // Error(kResourceExhausted) naming the row and the bytes if they don't fit in memory.
  AttentionStep(const AttentionRow& row, int32_t layers, int64_t l3_bytes, ThreadPool& pool);
  AttentionStep(const AttentionStep&) = delete;
  AttentionStep& operator=(const AttentionStep&) = delete;

  const AttentionBatch& batch() const { return batch_; }
  int32_t layers() const { return static_cast<int32_t>(cache_->layers().size()); }
  // All layers hold the same values.
  AttentionLayer layer(int32_t i) const { return {cache_->layers()[static_cast<size_t>(i)], nullptr}; }
  ConstHeadRows q() const;
  HeadRows out();

  // The present contents of out() beside the double reference: for the first and the last token of the step and as many
  // others, spread over it, as a second or so allows.
  struct Check {
    int64_t tokens = 0;  // compared, with all their heads
    double largest_error = 0, bound = 0;
    bool passed() const { return largest_error <= bound; }  // false for NaN
  };
  Check check() const;

 private:
  void make_batch(const AttentionRow& row);
  void fill(ThreadPool& pool);
  int64_t token_cost(int64_t request, int64_t row) const;

  AttentionGroup group_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> offsets_, kv_lens_, tables_, table_rows_;
  std::vector<int64_t> slots_;
  std::vector<float> q_, out_;
  AttentionBatch batch_;
};

}  // namespace quire
