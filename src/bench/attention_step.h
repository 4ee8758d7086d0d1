#pragma once
// One row of `quire bench attention` in the host's memory: caches with random keys and values in scattered blocks,
// queries and the batch.
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/backend.h"
#include "base/thread_pool.h"
#include "bench/attention_check.h"
#include "bench/attention_rows.h"
#include "bench/step_batch.h"
#include "engine/kv_cache.h"

namespace quire {

class AttentionStep {
 public:
  // layers: as layers_to_visit() has it. Throws Error(kResourceExhausted) naming the row and the bytes if they don't
  // fit in memory.
  AttentionStep(const AttentionRow& row, int32_t layers, int64_t l3_bytes, ThreadPool& pool);
  AttentionStep(const AttentionStep&) = delete;
  AttentionStep& operator=(const AttentionStep&) = delete;

  const AttentionBatch& batch() const { return batch_->view(); }
  int32_t layers() const { return static_cast<int32_t>(cache_->layers().size()); }
  // All layers hold the same values.
  AttentionLayer layer(int32_t i) const { return {cache_->layers()[static_cast<size_t>(i)], nullptr}; }
  ConstHeadRows q() const;
  HeadRows out();

  AttentionCheck check() const;  // of the present contents of out()

 private:
  void fill(ThreadPool& pool);

  AttentionGroup group_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<StepBatch> batch_;
  std::vector<float> q_, out_;
};

}  // namespace quire
