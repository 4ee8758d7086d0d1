#include "attention/phased.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>

#include "attention/check.h"
#include "attention/phased_plan.h"
#include "kernels/attention/attention.h"

namespace quire {
namespace {

constexpr int64_t kMaxWorkers = 512;

void check_in_debug([[maybe_unused]] const AttentionBatch& batch) {
#ifndef NDEBUG
  check_batch(batch);
#endif
}

AttentionArgs args_of(const AttentionGroup& group, const ConstHeadRows& q, const AttentionLayer& layer,
                      const HeadRows& out) {
  AttentionArgs args;
  args.heads = group.heads;
  args.scale = group.scale;
  args.soft_cap = group.soft_cap;
  args.window = group.window;
  args.alibi_slopes = group.alibi_slopes.empty() ? nullptr : group.alibi_slopes.data();
  args.sinks = layer.sinks;
  args.kv = layer.kv;
  args.q = q;
  args.out = out;
  return args;
}

// One run of a plan over a layer.
class PhasedRun {
 public:
  PhasedRun(const PhasedPlan& plan, const AttentionArgs& args, ThreadPool& pool)
      : plan_(plan), args_(args), pool_(pool), kernels_(attention_kernels()) {}

  void run(Workspace& workspace) {
    const WorkspaceScope scope(workspace);
    assert(pool_.workers() <= kMaxWorkers);
    scratch_floats_ = attention_scratch_floats(args_.heads, args_.kv);
    scratch_ = workspace.take<float>(static_cast<size_t>(pool_.workers() * scratch_floats_));
    if (plan_.decodes().range.requests > 0) run_decodes(workspace);
    if (!plan_.gather_rounds().empty()) run_gathers(workspace);
    if (!plan_.tiles().empty()) run_tiles();
    for (const IdleRows& rows : plan_.idle()) {
      for (int32_t head = 0; head < args_.heads; ++head) zero_rows(rows.first, rows.count, head);
    }
  }

 private:
  // fn(item, worker). Workers take the next item when they are free; which worker computes it does not change its
  // arithmetic.
  template <class Fn>
  void for_each(int64_t items, Fn fn) {
    std::atomic<int64_t> next = 0;
    const auto work = [&](int worker) {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < items;) fn(i, worker);
    };
    if (items > 1) {
      pool_.run(work);
    } else {
      work(0);
    }
  }

  float* scratch(int worker) const { return scratch_ + worker * scratch_floats_; }

  void zero_rows(int64_t first, int64_t count, int64_t head) const {
    const auto bytes = static_cast<size_t>(args_.kv.v_head_dim * block_bytes(args_.out.dtype));
    for (int64_t row = first; row < first + count; ++row) {
      const int64_t at = row * args_.out.row_stride + head * args_.out.head_stride;
      std::memset(static_cast<std::byte*>(args_.out.data) + at * block_bytes(args_.out.dtype), 0, bytes);
    }
  }

  void run_decodes(Workspace& workspace) {
    const DecodePlan& decodes = plan_.decodes();
    const int64_t state = attention_state_floats(args_.kv.v_head_dim);
    if (decodes.pieces > 1) {
      partials_ = workspace.take<float>(
          static_cast<size_t>(int64_t{decodes.range.requests} * decodes.partitions * args_.heads * state));
    }
    const int32_t items = decodes.tiles * decodes.pieces * decodes.head_groups;
    for_each(int64_t{decodes.range.requests} * items, [&](int64_t i, int worker) {
      const auto item = static_cast<int32_t>(i % items);
      decode(static_cast<int32_t>(i / items), item / decodes.head_groups / decodes.pieces,
             item / decodes.head_groups % decodes.pieces, item % decodes.head_groups, worker);
    });
    if (decodes.pieces == 1) return;
    const int64_t merges = int64_t{decodes.range.requests} * args_.heads;
    pool_.parallel_for_if_large(merges, merges * decodes.partitions * state, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const auto request = static_cast<int32_t>(i / args_.heads);
        const int32_t index = decodes.range.first_request + request;
        const int32_t kv_len = plan_.batch().kv_lens[static_cast<size_t>(index)];
        if (kv_len == 0) continue;
        const PartitionRange seen = partitions_seen(kv_len - 1, args_.window);
        kernels_.merge_row(args_, decodes.range.first_token + request, static_cast<int32_t>(i % args_.heads),
                           partials(request), seen.end - seen.first);
      }
    });
  }

  float* partials(int32_t request) const {
    return partials_ +
           int64_t{request} * plan_.decodes().partitions * args_.heads * attention_state_floats(args_.kv.v_head_dim);
  }

  // One piece of the partitions that one tile of a request's rows sees, for one group of KV heads.
  void decode(int32_t request, int32_t tile, int32_t piece, int32_t head_group, int worker) {
    const DecodePlan& decodes = plan_.decodes();
    const AttentionBatch& batch = plan_.batch();
    const int32_t index = decodes.range.first_request + request;
    const auto r = static_cast<size_t>(index);
    int32_t first_row = decodes.range.first_token + request, rows = 1;
    if (decodes.range.max_query_len > 1) {
      const int32_t tile_rows = attention_tile_rows(args_.heads, args_.kv);
      const int32_t query_len = batch.query_offsets[r + 1] - batch.query_offsets[r];
      if (tile * tile_rows >= query_len) return;
      first_row = batch.query_offsets[r] + tile * tile_rows;
      rows = std::min(tile_rows, query_len - tile * tile_rows);
    }
    const int32_t kv_len = batch.kv_lens[r], share = args_.heads / args_.kv.kv_heads;
    const int32_t first_head = head_group * decodes.group_heads,
                  heads = std::min(decodes.group_heads, args_.kv.kv_heads - first_head);
    if (kv_len == 0) {
      for (int32_t i = 0; piece == 0 && i < heads * share; ++i) zero_rows(first_row, rows, first_head * share + i);
      return;
    }
    AttentionTask task;
    task.block_table = batch.block_tables + batch.block_table_rows[r] * batch.block_table_stride;
    task.first_row = first_row;
    task.rows = rows;
    // The request's last row is at kv_len - 1.
    task.first_position = kv_len - 1;
    if (decodes.range.max_query_len > 1) task.first_position -= batch.query_offsets[r + 1] - 1 - first_row;
    task.first_partition = partitions_seen(task.first_position, args_.window).first;
    task.partitions = partitions_seen(task.first_position + rows - 1, 0).end - task.first_partition;
    if (decodes.pieces > 1) {
      const int32_t length = (task.partitions + decodes.pieces - 1) / decodes.pieces, begin = piece * length;
      if (begin >= task.partitions) return;
      task.first_partition += begin;
      task.partitions = std::min(length, task.partitions - begin);
      task.use = AttentionTask::Use::kPartitions;
      task.states = partials(request) + int64_t{begin} * args_.heads * attention_state_floats(args_.kv.v_head_dim);
    }
    kernels_.attend(args_, task, first_head, heads, scratch(worker));
  }

  void run_gathers(Workspace& workspace) {
    const int64_t kv_heads = args_.kv.kv_heads, partition = gathered_floats(args_.kv);
    auto* buffer = workspace.take<float>(static_cast<size_t>(PhasedPlan::buffer_floats(plan_.group())));
    carried_ =
        workspace.take<float>(static_cast<size_t>(PhasedPlan::carried_floats(plan_.group(), plan_.carried_rows())));
    for (const GatherRound& round : plan_.gather_rounds()) {
      for (int32_t p = round.first_piece; p < round.first_piece + round.pieces; ++p) {
        const GatherPiece& piece = plan_.gather_pieces()[static_cast<size_t>(p)];
        for_each(piece.partitions * kv_heads, [&](int64_t i, int worker) {
          const int64_t n = i / kv_heads, head = i % kv_heads;
          kernels_.gather(args_.kv, piece.block_table, static_cast<int32_t>(head),
                          piece.first_partition + static_cast<int32_t>(n),
                          buffer + ((piece.offset + n) * kv_heads + head) * partition, scratch(worker));
        });
      }
      for_each(round.tasks * kv_heads, [&](int64_t i, int worker) {
        const GatherTask& planned = plan_.gather_tasks()[static_cast<size_t>(round.first_task + i / kv_heads)];
        AttentionTask task = planned.task;
        task.gathered = buffer + planned.offset * kv_heads * partition;
        task.states = carried(task.first_row);
        kernels_.attend(args_, task, static_cast<int32_t>(i % kv_heads), 1, scratch(worker));
      });
    }
  }

  // States of a row of the step that are kept between rounds.
  float* carried(int32_t row) const {
    return carried_ + int64_t{row} * args_.heads * attention_state_floats(args_.kv.v_head_dim);
  }

  // Tiles are as large as pays; where they are fewer than keep the workers busy to the end, each is cut, last rows
  // first.
  void run_tiles() {
    constexpr int64_t kTasksOfWorker = 4, kFewStates = 96;
    const int64_t kv_heads = args_.kv.kv_heads, tasks = std::ssize(plan_.tiles()) * kv_heads;
    const int64_t parts = (kTasksOfWorker * pool_.workers() + tasks - 1) / tasks;
    const auto least_rows = static_cast<int32_t>(kFewStates * kv_heads / args_.heads + 1);
    for_each(tasks * parts, [&](int64_t i, int worker) {
      AttentionTask task = plan_.tiles()[static_cast<size_t>(i / kv_heads / parts)];
      const auto n = static_cast<int32_t>(parts);
      const int32_t rows = std::max((task.rows + n - 1) / n, least_rows),
                    begin = (n - 1 - static_cast<int32_t>(i / kv_heads % parts)) * rows;
      if (begin >= task.rows) return;
      cut_rows(begin, std::min(rows, task.rows - begin), task);
      if (task.use == AttentionTask::Use::kLast) task.states = carried(task.first_row);
      kernels_.attend(args_, task, static_cast<int32_t>(i % kv_heads), 1, scratch(worker));
    });
  }

  // Leaves `rows` rows of a task from `begin` on, with the partitions that they see.
  void cut_rows(int32_t begin, int32_t rows, AttentionTask& task) const {
    const int32_t end = partitions_seen(task.first_position + begin + rows - 1, 0).end;
    task.first_row += begin;
    task.first_position += begin;
    task.rows = rows;
    task.first_partition = std::max(task.first_partition, partitions_seen(task.first_position, args_.window).first);
    task.partitions = end - task.first_partition;
  }

  const PhasedPlan& plan_;
  const AttentionArgs& args_;
  ThreadPool& pool_;
  const AttentionKernels& kernels_;
  float *scratch_ = nullptr, *partials_ = nullptr, *carried_ = nullptr;
  int64_t scratch_floats_ = 0;
};

class PagedBackend : public AttentionBackend {
 public:
  explicit PagedBackend(ExtendStrategy strategy) : strategy_(strategy) {}

  std::unique_ptr<AttentionPlan> make_plan(const AttentionGroup& group, int32_t max_requests,
                                           int32_t max_tokens) const override {
    return std::make_unique<PhasedPlan>(group, strategy_, max_requests, max_tokens);
  }

  size_t workspace_bytes(const AttentionGroup& group, int32_t, int32_t max_tokens) const override {
    int64_t floats = kMaxWorkers * attention_scratch_floats(group.heads, kv_of(group, 0));
    floats += PhasedPlan::partial_floats(group);
    if (strategy_ == ExtendStrategy::kGather)
      floats += PhasedPlan::buffer_floats(group) + PhasedPlan::carried_floats(group, max_tokens);
    constexpr size_t kAlignmentSlack = 4 * Workspace::kAlignment;
    return static_cast<size_t>(floats) * sizeof(float) + kAlignmentSlack;
  }

  void run(const AttentionPlan& in, const ConstHeadRows& q, const AttentionLayer& layer, const HeadRows& out,
           Workspace& workspace, ThreadPool& pool) const override {
    const auto& plan = static_cast<const PhasedPlan&>(in);
    const AttentionArgs args = args_of(plan.group(), q, layer, out);
    PhasedRun(plan, args, pool).run(workspace);
  }

 private:
  ExtendStrategy strategy_;
};

class PhasedBackend final : public PagedBackend {
 public:
  using PagedBackend::PagedBackend;
  std::string_view name() const override { return "PHASED"; }
  bool can_capture_decodes() const override { return true; }

  void plan(const AttentionBatch& batch, AttentionPlan& out) const override {
    check_in_debug(batch);
    auto& plan = static_cast<PhasedPlan&>(out);
    plan.clear();
    if (batch.decode.requests > 0) plan.plan_decodes(batch, batch.decode);
    if (batch.extend.requests > 0) plan.plan_extends(batch, batch.extend);
    if (batch.prefill.requests > 0) plan.plan_extends(batch, batch.prefill);
  }
};

class JoinedBackend final : public PagedBackend {
 public:
  using PagedBackend::PagedBackend;
  std::string_view name() const override { return "CPU_ATTN"; }

  void plan(const AttentionBatch& batch, AttentionPlan& out) const override {
    check_in_debug(batch);
    auto& plan = static_cast<PhasedPlan&>(out);
    plan.clear();
    PhaseRange all;
    all.requests = batch.decode.requests + batch.extend.requests + batch.prefill.requests;
    all.tokens = batch.decode.tokens + batch.extend.tokens + batch.prefill.tokens;
    if (all.requests > 0) plan.plan_extends(batch, all);
  }
};

}  // namespace

std::unique_ptr<AttentionBackend> make_phased_backend(ExtendStrategy strategy) {
  return std::make_unique<PhasedBackend>(strategy);
}
std::unique_ptr<AttentionBackend> make_joined_backend(ExtendStrategy strategy) {
  return std::make_unique<JoinedBackend>(strategy);
}

std::vector<std::string> paged_backend_refusals(const AttentionGroup& group) {
  std::vector<std::string> reasons;
  const auto refuse = [&](std::string reason) { reasons.push_back(std::move(reason)); };
  if (group.block_size < 16 || group.block_size % 16 != 0) refuse("Block size must be a multiple of 16.");
  for (const auto& [name, dim] : {std::pair{"head_size", group.head_dim}, {"value head_size", group.v_head_dim}}) {
    if (dim < 8 || dim > kMaxHeadDim || dim % 8 != 0)
      refuse(fmt::format("{} {} not supported: a multiple of 8 up to {} is needed", name, dim, kMaxHeadDim));
  }
  if (group.layout == KvLayout::kShuffle && group.head_dim != group.v_head_dim) {
    refuse(fmt::format("head sizes {} of K and {} of V not supported in the shuffle layout: they must be equal",
                       group.head_dim, group.v_head_dim));
  }
  if (group.kv_heads < 1 || group.heads < 1 || group.heads % group.kv_heads != 0) {
    refuse(fmt::format("{} query heads can't share {} KV heads", group.heads, group.kv_heads));
  }
  if (!group.alibi_slopes.empty() && std::ssize(group.alibi_slopes) != group.heads)
    refuse(fmt::format("{} ALiBi slopes for {} query heads", group.alibi_slopes.size(), group.heads));
  if (group.window < 0) refuse(fmt::format("sliding window {} not supported: it must be positive", group.window));
  const DType dtype = group.kv_dtype;
  const bool wide = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  const bool narrow = dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2 || dtype == DType::kI8;
  if (!wide && !narrow) {
    refuse(fmt::format("kv_cache_dtype {} not supported: F32, F16, BF16, F8_E4M3, F8_E5M2 or I8 is needed",
                       dtype_name(dtype)));
  } else if (narrow != (group.kv_scaling != KvScaling::kNone)) {
    refuse(fmt::format("kv_cache_dtype {} {} scales", dtype_name(dtype), narrow ? "needs" : "can't have"));
  }
  return reasons;
}

}  // namespace quire
