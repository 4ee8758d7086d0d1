#pragma once
// What the CPU backends plan: for decodes a shape, for extends and prefills tables of work in buffers of fixed size.
#include <cstdint>
#include <vector>

#include "attention/backend.h"
#include "kernels/attention/attention.h"

namespace quire {

// A decode phase is planned from its range alone; run() reads the lengths. Work item (request, tile, piece, head
// group): rows tile * attention_tile_rows... of the request, the piece-th share of the partitions that they see, some
// KV heads.
struct DecodePlan {
  PhaseRange range;
  int32_t tiles = 0;                         // of a request
  int32_t pieces = 0;                        // 1 = rows are not cut along the keys
  int32_t partitions = 0;                    // most that a row sees
  int32_t group_heads = 0, head_groups = 0;  // KV heads of a group, and groups
};

// Partitions [first_partition, +partitions) of a request's context, to be gathered to partition `offset` of the buffer.
struct GatherPiece {
  const int32_t* block_table;
  int32_t first_partition, partitions, offset;
};

// Gathers pieces [first_piece, +pieces), then attends to them with tasks [first_task, +tasks).
struct GatherRound {
  int32_t first_piece, pieces, first_task, tasks;
};

// A tile of query rows that attends to a gathered piece.
struct GatherTask {
  AttentionTask task;
  int32_t offset;  // of the piece in the buffer
};

// Rows of requests without keys (padding) outside the decodes: their output is 0.
struct IdleRows {
  int32_t first, count;
};

class PhasedPlan final : public AttentionPlan {
 public:
  PhasedPlan(const AttentionGroup& group, ExtendStrategy strategy, int32_t max_requests, int32_t max_tokens);

  // The phases of a step; an empty one costs nothing. A prefill is an extend without context.
  void plan_decodes(const AttentionBatch& batch, const PhaseRange& range);
  void plan_extends(const AttentionBatch& batch, const PhaseRange& range);
  // Forgets the last step.
  void clear();

  // Floats that run() takes for split decodes, for the gathered context, and for the states of rows between rounds.
  static int64_t partial_floats(const AttentionGroup& group);
  static int64_t buffer_floats(const AttentionGroup& group);
  static int64_t carried_floats(const AttentionGroup& group, int32_t max_tokens);

  const AttentionGroup& group() const { return group_; }
  const AttentionBatch& batch() const { return batch_; }
  const DecodePlan& decodes() const { return decodes_; }
  const std::vector<AttentionTask>& tiles() const { return tiles_; }
  const std::vector<GatherPiece>& gather_pieces() const { return gather_pieces_; }
  const std::vector<GatherRound>& gather_rounds() const { return gather_rounds_; }
  const std::vector<GatherTask>& gather_tasks() const { return gather_tasks_; }
  const std::vector<IdleRows>& idle() const { return idle_; }
  int32_t carried_rows() const { return carried_rows_; }  // rows of the step up to the last whose state may be carried

 private:
  struct Request {
    const int32_t* block_table;
    int32_t first_row, rows, context_len;
  };
  Request request_of(const AttentionBatch& batch, int32_t index) const;
  void plan_tiles(const Request& request, int32_t first_partition, AttentionTask::Use use);
  bool gather_context(const Request& request, int32_t& room);
  void add_round();

  AttentionGroup group_;
  ExtendStrategy strategy_;
  int32_t tile_rows_;
  int32_t carried_rows_ = 0;
  AttentionBatch batch_;
  DecodePlan decodes_;
  std::vector<AttentionTask> tiles_;
  std::vector<GatherPiece> gather_pieces_;
  std::vector<GatherRound> gather_rounds_;
  std::vector<GatherTask> gather_tasks_;
  std::vector<IdleRows> idle_;
};

}  // namespace quire
