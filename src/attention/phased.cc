#include "attention/phased.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>

#include "kernels/attention/attention.h"

namespace quire {
namespace {

// Chunks of a decode are spread over the workers only while there are too few (request, KV head) pairs to keep them
// busy.
constexpr int32_t kEnoughTasks = 64;
constexpr int32_t kMaxPartials = 1024;

// One decode row whose chunks were computed apart.
struct Combine {
  int32_t row, first_partial, count;
};

struct PhasedPlan final : AttentionPlan {
  AttentionGroup group;
  std::vector<AttentionTask> tasks;  // decode first, then tiles of extend and prefill
  std::vector<Combine> combines;
  int32_t first_idle_row = 0, idle_rows = 0;  // rows of requests without keys: their output is 0
};

const int32_t* block_table_of(const AttentionBatch& batch, size_t request) {
  return batch.block_tables + batch.block_table_rows[request] * batch.block_table_stride;
}

int32_t chunks_of(int32_t kv_len) { return (kv_len + kChunkKeys - 1) / kChunkKeys; }

void plan_decode(const AttentionBatch& batch, PhasedPlan& plan) {
  const PhaseRange& range = batch.decode;
  const bool split = range.requests * plan.group.kv_heads < kEnoughTasks && range.max_kv_len > kChunkKeys;
  int32_t partials = 0;
  for (int32_t i = range.first_request; i < range.first_request + range.requests; ++i) {
    const auto r = static_cast<size_t>(i);
    const int32_t first_row = batch.query_offsets[r], rows = batch.query_offsets[r + 1] - first_row,
                  kv_len = batch.kv_lens[r];
    if (kv_len == 0) {
      // A padded row of a captured batch: such rows end the range.
      if (plan.idle_rows == 0) plan.first_idle_row = first_row;
      plan.idle_rows += rows;
      continue;
    }
    AttentionTask task{block_table_of(batch, r), first_row, rows, kv_len - rows, 0, chunks_of(kv_len), -1};
    if (split && rows == 1 && task.chunks > 1 && partials + task.chunks <= kMaxPartials) {
      plan.combines.push_back({first_row, partials, task.chunks});
      const int32_t chunks = task.chunks;
      task.chunks = 1;
      for (task.first_chunk = 0; task.first_chunk < chunks; ++task.first_chunk) {
        task.partial = partials++;
        plan.tasks.push_back(task);
      }
    } else {
      plan.tasks.push_back(task);
    }
  }
}

// Tiles of the last rows first: they see the most keys, and the longest work should start earliest.
void plan_tiles(const AttentionBatch& batch, const PhaseRange& range, PhasedPlan& plan) {
  for (int32_t i = range.first_request; i < range.first_request + range.requests; ++i) {
    const auto r = static_cast<size_t>(i);
    const int32_t first = batch.query_offsets[r], query_len = batch.query_offsets[r + 1] - first,
                  context_len = batch.kv_lens[r] - query_len;
    for (int32_t end = query_len; end > 0;) {
      const int32_t begin = (end - 1) / kQueryTile * kQueryTile;
      plan.tasks.push_back({block_table_of(batch, r), first + begin, end - begin, context_len + begin, 0,
                            chunks_of(context_len + end), -1});
      end = begin;
    }
  }
}

class PhasedBackend final : public AttentionBackend {
 public:
  std::string_view name() const override { return "PHASED"; }

  std::unique_ptr<AttentionPlan> make_plan(const AttentionGroup& group, int32_t max_requests,
                                           int32_t max_tokens) const override {
    auto plan = std::make_unique<PhasedPlan>();
    plan->group = group;
    plan->tasks.reserve(static_cast<size_t>(2 * max_requests + max_tokens / kQueryTile + kMaxPartials));
    plan->combines.reserve(static_cast<size_t>(max_requests));
    return plan;
  }

  void plan(const AttentionBatch& batch, AttentionPlan& out) const override {
    auto& plan = static_cast<PhasedPlan&>(out);
    plan.tasks.clear();
    plan.combines.clear();
    plan.idle_rows = 0;
    if (batch.decode.requests > 0) plan_decode(batch, plan);
    if (batch.extend.requests > 0) plan_tiles(batch, batch.extend, plan);
    if (batch.prefill.requests > 0) plan_tiles(batch, batch.prefill, plan);
  }

  size_t workspace_bytes(const AttentionGroup& group, int32_t, int32_t) const override {
    const int64_t partials = int64_t{kMaxPartials} * group.heads * attention_state_floats(group.head_dim);
    const int64_t scratch = kMaxWorkers * attention_scratch_floats(group.heads, group.kv_heads, group.head_dim);
    return static_cast<size_t>(partials + scratch) * sizeof(float) + 2 * 64;
  }

  void run(const AttentionPlan& in, const float* q, int64_t ldq, const PagedKv& kv, float* out, int64_t ldo,
           Workspace& workspace, ThreadPool& pool) const override {
    const auto& plan = static_cast<const PhasedPlan&>(in);
    const AttentionKernels& kernels = attention_kernels();
    const AttentionArgs args{plan.group.heads, plan.group.scale, kv, q, ldq, out, ldo};
    const size_t mark = workspace.mark();
    const int64_t scratch_floats = attention_scratch_floats(plan.group.heads, plan.group.kv_heads, plan.group.head_dim);
    assert(pool.workers() <= kMaxWorkers);
    auto* scratch = workspace.take<float>(static_cast<size_t>(pool.workers() * scratch_floats));
    float* partials = nullptr;
    if (!plan.combines.empty()) {
      partials = workspace.take<float>(
          static_cast<size_t>(int64_t{kMaxPartials} * args.heads * attention_state_floats(kv.head_dim)));
    }

    // Workers take the next piece when they are free; which worker computes a piece does not change its arithmetic.
    std::atomic<int64_t> next = 0;
    const int64_t pieces = static_cast<int64_t>(plan.tasks.size()) * kv.kv_heads;
    const auto attend = [&](int worker) {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
        kernels.attend(args, plan.tasks[static_cast<size_t>(i / kv.kv_heads)], static_cast<int32_t>(i % kv.kv_heads),
                       partials, scratch + worker * scratch_floats);
      }
    };
    if (pieces > 1) {
      pool.run(attend);
    } else {
      attend(0);
    }
    for (const Combine& combine : plan.combines) {
      for (int32_t head = 0; head < args.heads; ++head) {
        kernels.combine(args, combine.row, head, partials, combine.first_partial, combine.count, scratch);
      }
    }
    for (int32_t row = plan.first_idle_row; row < plan.first_idle_row + plan.idle_rows; ++row) {
      std::fill_n(out + row * ldo, int64_t{args.heads} * kv.head_dim, 0.0f);
    }
    workspace.release(mark);
  }

 private:
  static constexpr int64_t kMaxWorkers = 512;
};

}  // namespace

std::unique_ptr<AttentionBackend> make_phased_backend() { return std::make_unique<PhasedBackend>(); }

std::vector<std::string> phased_backend_refusals(const AttentionGroup& group) {
  std::vector<std::string> reasons;
  const auto refuse = [&](std::string reason) { reasons.push_back(std::move(reason)); };
  if (group.block_size < 16 || group.block_size % 16 != 0) refuse("Block size must be a multiple of 16.");
  if (group.head_dim < 8 || group.head_dim > kMaxHeadDim || group.head_dim % 8 != 0) {
    refuse(fmt::format("head_size {} not supported: a multiple of 8 up to {} is needed", group.head_dim, kMaxHeadDim));
  }
  if (group.kv_heads < 1 || group.heads < 1 || group.heads % group.kv_heads != 0) {
    refuse(fmt::format("{} query heads can't share {} KV heads", group.heads, group.kv_heads));
  }
  if (group.kv_dtype != DType::kF32 && group.kv_dtype != DType::kF16 && group.kv_dtype != DType::kBF16) {
    refuse(fmt::format("kv_cache_dtype {} not supported: F32, F16 or BF16 is needed", dtype_name(group.kv_dtype)));
  }
  return reasons;
}

}  // namespace quire
