#include "engine/scheduler.h"

#include <algorithm>
#include <tuple>

namespace quire {
namespace {

int64_t blocks_for(int64_t tokens, int64_t block_size) { return (tokens + block_size - 1) / block_size; }

bool wants_prompt_logprobs(const Sequence& sequence) {
  return sequence.request->input.params.prompt_logprobs.has_value() && sequence.choice == 0;
}

int64_t mean_rows(const Sequence& sequence, int64_t n) {
  return sequence.request->input.pooling == Pooling::kMean ? n : 0;
}

}  // namespace

int64_t prompt_logprob_rows(const Sequence& sequence, int64_t start, int64_t n) {
  // The row of token p gives the log-probability of token p + 1. A sequence that already has output was preempted: its
  // prompt is done.
  if (!wants_prompt_logprobs(sequence) || sequence.output_len() > 0) return 0;
  return std::max<int64_t>(0, std::min(start + n, sequence.prompt_len - 1) - start);
}

int64_t pooled_rows(const Sequence& sequence, int64_t start, int64_t n) {
  switch (sequence.request->input.pooling) {
    case Pooling::kNone:
      break;
    case Pooling::kLast:
      return start + n == sequence.prompt_len ? 1 : 0;
    case Pooling::kMean:
      return n;
  }
  return 0;
}

Scheduler::Scheduler(const SchedulerOptions& options, BlockPool& pool, BlockTables& tables)
    : options_(options), pool_(pool), tables_(tables) {
  running_.reserve(static_cast<size_t>(options.max_num_seqs));
  step_.reserve(static_cast<size_t>(options.max_num_seqs));
  cached_.reserve(static_cast<size_t>(tables.stride()));
}

// Order of service: priority (if that is the policy), arrival, index among the request's choices.
bool Scheduler::before(const Sequence& a, const Sequence& b) const {
  const auto key = [&](const Sequence& s) {
    return std::tuple(options_.priority ? s.request->input.priority : 0, s.request->number, s.choice);
  };
  return key(a) < key(b);
}

void Scheduler::insert_waiting(Sequence* sequence) {
  sequence->status = SequenceStatus::kWaiting;
  const auto at = std::upper_bound(waiting_.begin(), waiting_.end(), sequence,
                                   [&](Sequence* a, Sequence* b) { return before(*a, *b); });
  waiting_.insert(at, sequence);
}

void Scheduler::add(Sequence* sequence) {
  sequence->hashes.reserve(sequence->tokens.capacity() / static_cast<size_t>(pool_.block_size()));
  const size_t all = waiting_.size() + running_.size() + 1;  // any of them may have to wait again
  if (all > waiting_.capacity()) waiting_.reserve(2 * all);
  insert_waiting(sequence);
}

void Scheduler::free_blocks(Sequence* sequence) {
  if (sequence->table_row < 0) return;
  int32_t* table = tables_.row(sequence->table_row);
  // Last block first: the tail of a prefix is the least likely to be found again, so it should be reused first.
  for (int32_t i = sequence->blocks; i > 0; --i) pool_.release(table[i - 1]);
  tables_.give_row(sequence->table_row);
  sequence->table_row = -1;
  sequence->blocks = 0;
  sequence->published = 0;
  sequence->computed = 0;
}

void Scheduler::finish(Sequence* sequence) {
  if (sequence->status == SequenceStatus::kRunning) {
    std::erase(running_, sequence);
  } else if (sequence->status == SequenceStatus::kWaiting) {
    std::erase(waiting_, sequence);
  }
  std::erase_if(step_, [&](const ScheduledSequence& s) { return s.sequence == sequence; });
  free_blocks(sequence);
  sequence->status = SequenceStatus::kFinished;
}

void Scheduler::preempt(Sequence* sequence) {
  running_.erase(std::find(running_.begin(), running_.end(), sequence));
  free_blocks(sequence);
  ++sequence->preemptions;
  ++preemptions_;
  insert_waiting(sequence);
}

// Gives the sequence blocks for `tokens` tokens; false if the pool has too few (those it got stay with it).
bool Scheduler::grow(Sequence* sequence, int64_t tokens) {
  int32_t* table = tables_.row(sequence->table_row);
  for (const int64_t wanted = blocks_for(tokens, pool_.block_size()); sequence->blocks < wanted;) {
    const auto block = pool_.allocate();
    if (!block) return false;
    table[sequence->blocks++] = *block;
  }
  return true;
}

// n, or fewer where the step has no room for the logits or states that n tokens would need.
int64_t Scheduler::clip_to_rows(const Sequence& sequence, int64_t start, int64_t n, const Budget& budget) {
  if (mean_rows(sequence, n) > budget.mean_rows) n = budget.mean_rows;
  return prompt_logprob_rows(sequence, start, n) <= budget.logprob_rows ? n : budget.logprob_rows;
}

void Scheduler::place(Sequence* sequence, int64_t n, Budget& budget) {
  step_.push_back({sequence, sequence->computed, n, sequence->computed + n == sequence->length()});
  budget.tokens -= n;
  budget.logprob_rows -= prompt_logprob_rows(*sequence, sequence->computed, n);
  budget.mean_rows -= mean_rows(*sequence, n);
}

void Scheduler::schedule_running(Budget& budget) {
  for (size_t i = 0; i < running_.size() && budget.tokens > 0; ++i) {
    Sequence* sequence = running_[i];
    if (sequence->complete()) continue;
    int64_t n = std::min(sequence->length() - sequence->computed, budget.tokens);
    n = clip_to_rows(*sequence, sequence->computed, n, budget);
    if (n <= 0) continue;
    bool placed = true;
    while (!grow(sequence, sequence->computed + n)) {
      // Take the blocks of the sequence that would be served last.
      Sequence* victim =
          *std::max_element(running_.begin(), running_.end(), [&](Sequence* a, Sequence* b) { return before(*a, *b); });
      const auto at =
          std::find_if(step_.begin(), step_.end(), [&](const ScheduledSequence& s) { return s.sequence == victim; });
      if (at != step_.end()) {
        budget.tokens += at->query_len;
        budget.logprob_rows += prompt_logprob_rows(*victim, at->start, at->query_len);
        budget.mean_rows += mean_rows(*victim, at->query_len);
        step_.erase(at);
      }
      const auto victim_index =
          static_cast<size_t>(std::find(running_.begin(), running_.end(), victim) - running_.begin());
      preempt(victim);
      if (victim_index < i) --i;
      if (victim == sequence) {
        placed = false;
        --i;  // its place in running_ is the next one's now; wraps to -1 and back for the first
        break;
      }
    }
    if (placed) place(sequence, n, budget);
  }
}

void Scheduler::extend_hashes(Sequence& sequence, int64_t blocks) {
  const int64_t size = pool_.block_size();
  for (auto i = static_cast<int64_t>(sequence.hashes.size()); i < blocks; ++i) {
    const BlockHash parent = i == 0 ? pool_.root(sequence.request->input.cache_salt) : sequence.hashes.back();
    sequence.hashes.push_back(pool_.extend(
        parent, std::span(sequence.tokens).subspan(static_cast<size_t>(i * size), static_cast<size_t>(size))));
  }
}

// Starts a waiting sequence if the blocks for all its tokens are there; it then may be chunked, but it never starts
// what it can't finish.
bool Scheduler::admit(Sequence* sequence, Budget& budget) {
  if (sequence->pending > 0) return false;  // preempted meanwhile: its prompt is not all known
  const int64_t size = pool_.block_size(), length = sequence->length();
  cached_.clear();
  // What the cache knows is not computed, so its logits and states are not to be had.
  const bool lookup =
      options_.prefix_caching && prompt_logprob_rows(*sequence, 0, length) == 0 && mean_rows(*sequence, length) == 0;
  if (lookup) {
    const int64_t most = (length - 1) / size;  // at least one token is computed
    extend_hashes(*sequence, most);
    for (int64_t i = 0; i < most; ++i) {
      const auto tokens =
          std::span<const int32_t>(sequence->tokens).subspan(static_cast<size_t>(i * size), static_cast<size_t>(size));
      const auto block = pool_.find(sequence->hashes[static_cast<size_t>(i)], tokens);
      if (!block) break;
      cached_.push_back(*block);
    }
  }
  const int64_t cached_tokens = static_cast<int64_t>(cached_.size()) * size;
  int64_t n = length - cached_tokens;
  if (!options_.chunked_prefill && n > budget.tokens) return false;
  n = clip_to_rows(*sequence, cached_tokens, std::min(n, budget.tokens), budget);
  if (n <= 0) return false;

  for (const int32_t block : cached_) pool_.retain(block);
  if (blocks_for(length, size) - static_cast<int64_t>(cached_.size()) > pool_.free_blocks()) {
    for (auto it = cached_.rbegin(); it != cached_.rend(); ++it) pool_.release(*it);
    return false;
  }
  if (lookup && sequence->preemptions == 0) {  // what a preempted one finds again is its own
    prefix_cache_queries_ += length;
    prefix_cache_hits_ += cached_tokens;
  }
  sequence->table_row = tables_.take_row();
  std::copy(cached_.begin(), cached_.end(), tables_.row(sequence->table_row));
  sequence->blocks = static_cast<int32_t>(cached_.size());
  sequence->published = sequence->blocks;
  sequence->computed = cached_tokens;
  if (sequence->preemptions == 0) sequence->cached_tokens = cached_tokens;
  sequence->status = SequenceStatus::kRunning;
  running_.push_back(sequence);
  grow(sequence, cached_tokens + n);
  place(sequence, n, budget);
  return true;
}

void Scheduler::schedule_waiting(Budget& budget) {
  for (size_t i = 0; i < waiting_.size() && budget.tokens > 0 && running() < options_.max_num_seqs;) {
    Sequence* sequence = waiting_[i];
    const bool sibling_first = options_.prefix_caching && sequence->choice > 0 && !sequence->request->prompt_computed &&
                               sequence->request->sequences[0]->status != SequenceStatus::kFinished;
    if (sibling_first) {
      ++deferred_;
      ++i;  // its prompt is being computed by the first choice; it will find it in the cache
      continue;
    }
    if (!admit(sequence, budget)) return;  // nobody overtakes
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

const std::vector<ScheduledSequence>& Scheduler::schedule() {
  step_.clear();
  deferred_ = 0;
  Budget budget{options_.max_num_batched_tokens, options_.max_prompt_logprob_rows, options_.max_mean_pooling_rows};
  const int64_t preempted_before = preemptions_;
  schedule_running(budget);
  if (preemptions_ == preempted_before) schedule_waiting(budget);
  return step_;
}

// Of tokens that are not only cached but known.
void Scheduler::publish_full_blocks(Sequence& sequence) {
  if (!options_.prefix_caching) return;
  const int64_t size = pool_.block_size(), full = std::min(sequence.computed, sequence.known()) / size;
  extend_hashes(sequence, full);
  for (; sequence.published < full; ++sequence.published) {
    const auto i = static_cast<size_t>(sequence.published);
    pool_.publish(
        tables_.row(sequence.table_row)[i], sequence.hashes[i],
        std::span<const int32_t>(sequence.tokens).subspan(i * static_cast<size_t>(size), static_cast<size_t>(size)));
  }
}

void Scheduler::step_submitted() {
  for (const ScheduledSequence& scheduled : step_) {
    Sequence& sequence = *scheduled.sequence;
    sequence.computed = scheduled.start + scheduled.query_len;
    if (scheduled.sampled) ++sequence.pending;
    if (sequence.computed >= sequence.prompt_len) sequence.request->prompt_computed = true;
    publish_full_blocks(sequence);
  }
}

void Scheduler::token_known(Sequence& sequence, int32_t token) {
  --sequence.pending;
  sequence.tokens.push_back(token);
  if (sequence.status == SequenceStatus::kRunning) publish_full_blocks(sequence);
}

}  // namespace quire
