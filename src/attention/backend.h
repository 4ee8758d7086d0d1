#pragma once
// The attention backend interface: plan once a step for a group of like layers, run for each layer from the plan.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/batch.h"
#include "base/thread_pool.h"
#include "tensor/paged_kv.h"
#include "tensor/workspace.h"

namespace quire {

// What the layers of one attention group have in common.
struct AttentionGroup {
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1.0f;  // of q.k, 1/sqrt(head_dim) by default
  DType kv_dtype = DType::kF32;
  KvLayout layout = KvLayout::kPlain;
  int32_t block_size = 16;
};

// What plan() computed; belongs to its backend and is overwritten by the next plan().
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  virtual std::string_view name() const = 0;
  // A plan object with room for the largest step, made once for each group; plan() fills it without allocating.
  virtual std::unique_ptr<AttentionPlan> make_plan(const AttentionGroup& group, int32_t max_requests,
                                                   int32_t max_tokens) const = 0;
  virtual void plan(const AttentionBatch& batch, AttentionPlan& plan) const = 0;
  // Scratch bytes that run() takes for the largest step.
  virtual size_t workspace_bytes(const AttentionGroup& group, int32_t max_requests, int32_t max_tokens) const = 0;
  // q row i at q + i*ldq, [heads, head_dim]; K and V of the step are in the cache already. out row i at out + i*ldo.
  // Launches nothing for an empty phase, allocates nothing.
  virtual void run(const AttentionPlan& plan, const float* q, int64_t ldq, const PagedKv& kv, float* out, int64_t ldo,
                   Workspace& workspace, ThreadPool& pool) const = 0;
};

}  // namespace quire
