#include "attention/phased_plan.h"

#include <algorithm>

namespace quire {
namespace {

// Pieces of decode work that keep the workers of a large machine busy. Where there are fewer (request, head group)
// items, rows are cut along the keys.
constexpr int32_t kEnoughPieces = 64;
constexpr int32_t kMaxPartials = 8192;  // a million keys; the workspace is touched only as far as it is used
// Contexts up to this many partitions are not worth the merging.
constexpr int32_t kFewPartitions = 2;
constexpr int32_t kGatherPartitions = kGatherTokens / kPartitionKeys;

int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

// Most partitions that one row sees of kv_len keys.
int32_t most_partitions(int32_t kv_len, int32_t window) {
  const int32_t all = ceil_div(kv_len, kPartitionKeys);
  if (window == 0 || window >= kv_len) return all;
  // A window of 1 lies in one partition; one key more may cross into the next.
  return std::min(all, ceil_div(window - 1, kPartitionKeys) + 1);
}

}  // namespace

PhasedPlan::PhasedPlan(const AttentionGroup& group, ExtendStrategy strategy, int32_t max_requests, int32_t max_tokens)
    : group_(group), strategy_(strategy), tile_rows_(attention_tile_rows(group.heads, kv_of(group, 0))) {
  const auto requests = static_cast<size_t>(max_requests);
  // Every request may end in a tile that isn't full.
  const size_t tiles = static_cast<size_t>(max_tokens / tile_rows_) + requests;
  tiles_.reserve(tiles);
  idle_.reserve(requests);
  if (strategy_ == ExtendStrategy::kPaged) return;
  // One round's worth; what many rounds need more is allocated when it first comes, and kept.
  gather_pieces_.reserve(requests);
  gather_rounds_.reserve(requests);
  gather_tasks_.reserve(tiles);
}

int64_t PhasedPlan::partial_floats(const AttentionGroup& group) {
  return int64_t{kMaxPartials} * group.heads * attention_state_floats(group.v_head_dim);
}

int64_t PhasedPlan::buffer_floats(const AttentionGroup& group) {
  return int64_t{kGatherPartitions} * group.kv_heads * gathered_floats(kv_of(group, 0));
}

int64_t PhasedPlan::carried_floats(const AttentionGroup& group, int32_t max_tokens) {
  return int64_t{max_tokens} * group.heads * attention_state_floats(group.v_head_dim);
}

void PhasedPlan::clear() {
  decodes_ = {};
  if (!tiles_.empty()) tiles_.clear();
  if (!idle_.empty()) idle_.clear();
  if (gather_rounds_.empty()) return;
  gather_pieces_.clear();
  gather_rounds_.clear();
  gather_tasks_.clear();
}

void PhasedPlan::plan_decodes(const AttentionBatch& batch, const PhaseRange& range) {
  batch_ = batch;
  decodes_.range = range;
  decodes_.tiles = ceil_div(range.max_query_len, tile_rows_);
  decodes_.partitions = most_partitions(range.max_kv_len, group_.window);
  // Rows that use keys straight from their pages do so for as many KV heads as a task's scratch holds.
  const bool pages = range.max_query_len * (group_.heads / group_.kv_heads) <= kPageStates;
  decodes_.group_heads = pages ? std::min(tile_rows_ / range.max_query_len, group_.kv_heads) : 1;
  decodes_.head_groups = ceil_div(group_.kv_heads, decodes_.group_heads);
  const int32_t items = range.requests * decodes_.head_groups;
  const bool split = range.max_query_len == 1 && items < kEnoughPieces && decodes_.partitions > kFewPartitions &&
                     range.requests * int64_t{decodes_.partitions} <= kMaxPartials;
  decodes_.pieces = split ? std::min(ceil_div(kEnoughPieces, items), decodes_.partitions) : 1;
}

PhasedPlan::Request PhasedPlan::request_of(const AttentionBatch& batch, int32_t index) const {
  const auto r = static_cast<size_t>(index);
  const int32_t first_row = batch.query_offsets[r], rows = batch.query_offsets[r + 1] - first_row;
  return {batch.block_tables + batch.block_table_rows[r] * batch.block_table_stride, first_row, rows,
          batch.kv_lens[r] - rows};
}

void PhasedPlan::plan_extends(const AttentionBatch& batch, const PhaseRange& range) {
  int32_t room = 0;
  for (int32_t i = range.first_request; i < range.first_request + range.requests; ++i) {
    const Request request = request_of(batch, i);
    if (request.context_len < 0) {
      idle_.push_back({request.first_row, request.rows});
    } else if (strategy_ == ExtendStrategy::kGather && gather_context(request, room)) {
      carried_rows_ = range.first_token + range.tokens;
      plan_tiles(request, request.context_len / kPartitionKeys, AttentionTask::Use::kLast);
    } else {
      plan_tiles(request, 0, AttentionTask::Use::kWhole);
    }
  }
}

// The tasks of a request over its partitions from first_partition on. The last rows first: they see the most keys, and
// the longest work should start earliest.
void PhasedPlan::plan_tiles(const Request& request, int32_t first_partition, AttentionTask::Use use) {
  for (int32_t end = request.rows; end > 0;) {
    const int32_t begin = (end - 1) / tile_rows_ * tile_rows_;
    AttentionTask task;
    task.block_table = request.block_table;
    task.first_row = request.first_row + begin;
    task.rows = end - begin;
    task.first_position = request.context_len + begin;
    task.first_partition = std::max(first_partition, partitions_seen(task.first_position, group_.window).first);
    task.partitions = partitions_seen(request.context_len + end - 1, 0).end - task.first_partition;
    task.use = use;
    tiles_.push_back(task);
    end = begin;
  }
}

void PhasedPlan::add_round() {
  gather_rounds_.push_back(
      {static_cast<int32_t>(gather_pieces_.size()), 0, static_cast<int32_t>(gather_tasks_.size()), 0});
}

// Plans the partitions that hold nothing but context. room: partitions that the last round has left. False if there are
// none: then all is read in place.
bool PhasedPlan::gather_context(const Request& request, int32_t& room) {
  const int32_t end = request.context_len / kPartitionKeys;
  int32_t first = partitions_seen(request.context_len, group_.window).first;
  if (first >= end) return false;
  for (auto use = AttentionTask::Use::kFirst; first < end; use = AttentionTask::Use::kMiddle) {
    if (room == 0) {
      add_round();
      room = kGatherPartitions;
    }
    GatherRound& round = gather_rounds_.back();
    const int32_t partitions = std::min(room, end - first), offset = kGatherPartitions - room;
    gather_pieces_.push_back({request.block_table, first, partitions, offset});
    ++round.pieces;
    for (int32_t begin = 0; begin < request.rows; begin += tile_rows_) {
      AttentionTask task;
      task.first_row = request.first_row + begin;
      task.rows = std::min(tile_rows_, request.rows - begin);
      task.first_position = request.context_len + begin;
      task.first_partition = first;
      task.partitions = partitions;
      task.use = use;
      gather_tasks_.push_back({task, offset});
      ++round.tasks;
    }
    first += partitions;
    room -= partitions;
  }
  return true;
}

}  // namespace quire
