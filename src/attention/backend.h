#pragma once
// The attention backend interface: plan once a step for a group of like layers, run for each layer from the plan.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/batch.h"
#include "base/thread_pool.h"
#include "tensor/head_rows.h"
#include "tensor/paged_kv.h"
#include "tensor/workspace.h"

namespace quire {

// What the layers of one attention group have in common.
struct AttentionGroup {
  int32_t heads = 0, kv_heads = 0;
  int32_t head_dim = 0, v_head_dim = 0;
  float scale = 1.0f;                   // of q.k, 1/sqrt(head_dim) by default
  float soft_cap = 0.0f;                // score = soft_cap * tanh(score / soft_cap); 0 = none
  int32_t window = 0;                   // newest keys that a query sees, its own among them; 0 = all
  std::span<const float> alibi_slopes;  // [heads] or empty: score += slope * (key position - query position)
  DType kv_dtype = DType::kF32;
  KvScaling kv_scaling = KvScaling::kNone;
  KvLayout layout = KvLayout::kPlain;
  int32_t block_size = 16;
};

// The cache of one layer of the group, still without memory.
inline PagedKv kv_of(const AttentionGroup& group, int64_t blocks) {
  PagedKv kv;
  kv.dtype = group.kv_dtype;
  kv.layout = group.layout;
  kv.scaling = group.kv_scaling;
  kv.block_size = group.block_size;
  kv.kv_heads = group.kv_heads;
  kv.head_dim = group.head_dim;
  kv.v_head_dim = group.v_head_dim;
  kv.blocks = blocks;
  return kv;
}

// What differs from layer to layer.
struct AttentionLayer {
  PagedKv kv;
  const float* sinks = nullptr;  // [heads] or null: a logit that joins the softmax and has no value
};

// How an extend reads its context: pages in place, or gathered to contiguous memory in chunks of at most 32,768 tokens,
// all requests together.
enum class ExtendStrategy : uint8_t { kPaged, kGather };
constexpr int32_t kGatherTokens = 32768;

// What plan() computed; belongs to its backend and is overwritten by the next plan().
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  virtual std::string_view name() const = 0;
  // Whether a plan of a decode-only step with one query a request stays good for other contents of the same buffers, up
  // to the planned requests and max_kv_len: then its launches can be captured in a graph.
  virtual bool can_capture_decodes() const { return false; }
  // A plan object with room for the largest step, made once for each group; plan() fills it without allocating, but for
  // the tables of an extend that gathers in more rounds than any before.
  virtual std::unique_ptr<AttentionPlan> make_plan(const AttentionGroup& group, int32_t max_requests,
                                                   int32_t max_tokens) const = 0;
  virtual void plan(const AttentionBatch& batch, AttentionPlan& plan) const = 0;
  // Scratch bytes that run() takes for the largest step.
  virtual size_t workspace_bytes(const AttentionGroup& group, int32_t max_requests, int32_t max_tokens) const = 0;
  // q: rows of the step, [heads, head_dim] each; out: likewise, [heads, v_head_dim]. K and V of the step are in the
  // cache already. A backend that can capture decodes reads their kv_lens, block tables, table rows and query offsets
  // now. Launches nothing for an empty phase, allocates nothing. pool: of the CPU's backends.
  virtual void run(const AttentionPlan& plan, const ConstHeadRows& q, const AttentionLayer& layer, const HeadRows& out,
                   Workspace& workspace, ThreadPool& pool) const = 0;
};

}  // namespace quire
