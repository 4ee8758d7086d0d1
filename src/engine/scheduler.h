#pragma once
// Decides what each step computes: running sequences first, then waiting ones, within a budget of tokens and the blocks
// there are. Pure logic over the block pool: no threads, no model, no clock but for the time stamps of its sequences.
#include <cstdint>
#include <vector>

#include "engine/block_tables.h"
#include "engine/sequence.h"
#include "kvcache/block_pool.h"

namespace quire {

struct SchedulerOptions {
  int64_t max_num_seqs = 256;
  int64_t max_num_batched_tokens = 2048;
  int64_t max_prompt_logprob_rows = 256;  // prompt rows of a step whose logits are wanted
  int64_t max_mean_pooling_rows = 1024;   // tokens of a step that go into means of hidden states
  bool chunked_prefill = true;
  bool prefix_caching = true;
  bool priority = false;  // else first come, first served
};

// One sequence's part of a step: tokens [start, start + query_len). sampled: its last token gets a successor.
struct ScheduledSequence {
  Sequence* sequence;
  int64_t start, query_len;
  bool sampled;
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, BlockPool& pool, BlockTables& tables);

  void add(Sequence* sequence);  // allocates what schedule() will need for it
  // Takes a sequence out, wherever it is, and frees its blocks.
  void finish(Sequence* sequence);

  // The next step; empty if there is nothing to do. Valid until the next call. A sequence is in it at most once.
  const std::vector<ScheduledSequence>& schedule();
  // The step is computed, or will be before any later one: its tokens count as cached, full blocks are published, and
  // sampled sequences have a token more, which is pending.
  void step_submitted();
  // A pending token is known.
  void token_known(Sequence& sequence, int32_t token);

  bool idle() const { return running_.empty() && waiting_.empty(); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  // Waiting ones that the last schedule() passed over, since another choice of their request computes the prompt.
  int64_t deferred() const { return deferred_; }
  // Since construction.
  int64_t preemptions() const { return preemptions_; }
  int64_t prefix_cache_queries() const { return prefix_cache_queries_; }
  int64_t prefix_cache_hits() const { return prefix_cache_hits_; }

 private:
  // What is left of the step that is being put together.
  struct Budget {
    int64_t tokens, logprob_rows, mean_rows;
  };
  bool before(const Sequence& a, const Sequence& b) const;
  void schedule_running(Budget& budget);
  void schedule_waiting(Budget& budget);
  bool admit(Sequence* sequence, Budget& budget);
  bool grow(Sequence* sequence, int64_t tokens);
  void preempt(Sequence* sequence);
  void free_blocks(Sequence* sequence);
  void insert_waiting(Sequence* sequence);
  void extend_hashes(Sequence& sequence, int64_t blocks);
  void publish_full_blocks(Sequence& sequence);
  static int64_t clip_to_rows(const Sequence& sequence, int64_t start, int64_t n, const Budget& budget);
  void place(Sequence* sequence, int64_t n, Budget& budget);

  SchedulerOptions options_;
  BlockPool& pool_;
  BlockTables& tables_;
  std::vector<Sequence*> running_;  // in order of service
  std::vector<Sequence*> waiting_;  // likewise; has room for the running ones too
  std::vector<ScheduledSequence> step_;
  std::vector<int32_t> cached_;  // scratch of admit(): blocks found in the prefix cache
  int64_t deferred_ = 0, preemptions_ = 0, prefix_cache_queries_ = 0, prefix_cache_hits_ = 0;
};

// Prompt rows [start, start + n) of a sequence whose logits its prompt_logprobs still need.
int64_t prompt_logprob_rows(const Sequence& sequence, int64_t start, int64_t n);
// How many of the last rows of [start, start + n) have a hidden state that its pooling needs.
int64_t pooled_rows(const Sequence& sequence, int64_t start, int64_t n);

}  // namespace quire
