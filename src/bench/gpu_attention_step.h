#pragma once
// One row of `quire bench attention` in the memory of a GPU. For builds with one.
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/backend.h"
#include "base/thread_pool.h"
#include "bench/attention_check.h"
#include "bench/attention_rows.h"
#include "bench/step_batch.h"
#include "engine/kv_cache.h"
#include "gpu/memory.h"
#include "gpu/stream.h"

namespace quire {

class GpuAttentionStep {
 public:
  // As AttentionStep. Queries and outputs are of the cache's type if that has 16 or 32 bits, else bf16. Keys and values
  // are random in a number of blocks and repeat from there on.
  GpuAttentionStep(const AttentionRow& row, int32_t layers, int64_t l2_bytes, gpu::Stream& stream, ThreadPool& pool);
  GpuAttentionStep(const GpuAttentionStep&) = delete;
  GpuAttentionStep& operator=(const GpuAttentionStep&) = delete;

  const AttentionBatch& batch() const { return device_batch_; }
  int32_t layers() const { return static_cast<int32_t>(cache_->layers().size()); }
  AttentionLayer layer(int32_t i) const { return {cache_->layers()[static_cast<size_t>(i)], nullptr}; }
  ConstHeadRows q() const { return rows_of(queries_.data(), group_.head_dim); }
  HeadRows out() const;
  AttentionCheck check() const;  // waits for the stream

 private:
  void upload_batch();
  void fill(ThreadPool& pool);
  void fill_plane(void* plane, const void* pattern, int64_t pattern_bytes, int64_t plane_bytes);
  void make_queries();
  ConstHeadRows rows_of(const void* data, int32_t head_dim) const {
    return {data, int64_t{group_.heads} * head_dim, head_dim, dtype_};
  }

  AttentionGroup group_;
  DType dtype_;
  gpu::Stream& stream_;
  std::unique_ptr<StepBatch> batch_;
  AttentionBatch device_batch_;
  std::unique_ptr<KvCache> cache_;
  gpu::DeviceMemory batch_memory_, queries_, out_;
  std::vector<std::byte> host_queries_;
};

}  // namespace quire
