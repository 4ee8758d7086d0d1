// The scheduler with a model that is a hash: a sequence's next token depends on all its tokens, read back from a fake
// KV cache through the block table. Wrong positions, blocks shared by mistake or lost tokens change the answer.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace quire {
namespace {

constexpr int32_t kVocab = 1000;
constexpr int32_t kBlockSize = 16;

int32_t next_token(std::span<const int32_t> tokens) {
  uint64_t hash = 1469598103934665603u;
  for (const int32_t token : tokens) hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211u;
  return static_cast<int32_t>(hash % kVocab);
}

std::vector<int32_t> expected_output(std::vector<int32_t> tokens, int64_t n) {
  const size_t prompt = tokens.size();
  for (int64_t i = 0; i < n; ++i) tokens.push_back(next_token(tokens));
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end()};
}

std::vector<int32_t> some_tokens(int n, int salt) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) tokens[static_cast<size_t>(i)] = (i * 31 + salt * 97) % kVocab;
  return tokens;
}

class FakeEngine {
 public:
  FakeEngine(SchedulerOptions options, int32_t blocks, int64_t max_len = 256)
      : options_(options),
        pool_({blocks, kBlockSize, options.prefix_caching, 7}),
        tables_(static_cast<int32_t>(options.max_num_seqs), (max_len + kBlockSize - 1) / kBlockSize),
        scheduler_(options, pool_, tables_),
        kv_(static_cast<size_t>(blocks) * kBlockSize, -1) {}

  EngineRequest& submit(const std::vector<int32_t>& prompt, int64_t max_tokens, int32_t n = 1, int64_t priority = 0,
                        bool prompt_logprobs = false) {
    EngineRequest& request = *requests_.emplace_back(std::make_unique<EngineRequest>());
    request.number = requests_.size();
    request.input.priority = priority;
    request.input.params.max_tokens = max_tokens;
    request.input.params.n = n;
    if (prompt_logprobs) request.input.params.prompt_logprobs = 1;
    for (int32_t choice = 0; choice < n; ++choice) {
      auto sequence = std::make_unique<Sequence>();
      sequence->request = &request;
      sequence->choice = choice;
      sequence->tokens = prompt;
      sequence->prompt_len = sequence->length();
      scheduler_.add(sequence.get());
      request.sequences.push_back(std::move(sequence));
    }
    return request;
  }

  void abort(EngineRequest& request) {
    for (const auto& sequence : request.sequences) {
      if (sequence->status != SequenceStatus::kFinished) scheduler_.finish(sequence.get());
      std::erase_if(under_way_, [&](const Sampled& one) { return one.sequence == sequence.get(); });
    }
  }

  // From now on a step's tokens are known only when the next one has been scheduled.
  void run_ahead() { ahead_ = true; }

  // One step; returns the tokens that it computed.
  int64_t step() {
    const std::vector<ScheduledSequence> scheduled = scheduler_.schedule();
    int64_t tokens = 0, logprob_rows = 0;
    std::map<const Sequence*, int> seen;
    for (const ScheduledSequence& s : scheduled) {
      EXPECT_EQ(seen[s.sequence]++, 0) << "a sequence is in a step once";
      EXPECT_GT(s.query_len, 0);
      EXPECT_EQ(s.start, s.sequence->computed);
      EXPECT_EQ(s.sampled, s.start + s.query_len == s.sequence->length());
      tokens += s.query_len;
      logprob_rows += prompt_logprob_rows(*s.sequence, s.start, s.query_len);
      for (int64_t p = s.start; p < s.start + s.query_len; ++p)
        kv_at(*s.sequence, p) = tokens_of(*s.sequence)[static_cast<size_t>(p)];
    }
    EXPECT_LE(tokens, options_.max_num_batched_tokens);
    EXPECT_LE(static_cast<int64_t>(scheduled.size()), options_.max_num_seqs);
    EXPECT_LE(logprob_rows, options_.max_prompt_logprob_rows);
    std::vector<Sampled> sampled;
    for (const ScheduledSequence& s : scheduled) {
      if (!s.sampled) continue;
      std::vector<int32_t> read;
      for (int64_t p = 0; p < s.sequence->length(); ++p) read.push_back(kv_at(*s.sequence, p));
      EXPECT_EQ(read, tokens_of(*s.sequence));
      sampled.push_back({s.sequence, next_token(read)});
    }
    scheduler_.step_submitted();
    if (ahead_) std::swap(sampled, under_way_);
    for (const auto& [sequence, token] : sampled) {
      scheduler_.token_known(*sequence, token);
      if (sequence->output_len() < *sequence->request->input.params.max_tokens) continue;
      scheduler_.finish(sequence);
    }
    return tokens;
  }

  int64_t run_until_idle(int64_t most_steps = 100000) {
    int64_t steps = 0;
    while (!scheduler_.idle()) {
      const bool awaits = !under_way_.empty();
      EXPECT_TRUE(step() > 0 || awaits) << "a step without work while something waits: a stall";
      if (++steps > most_steps || testing::Test::HasFailure()) {
        ADD_FAILURE() << "no end after " << steps << " steps";
        break;
      }
    }
    return steps;
  }

  void expect_right(const EngineRequest& request) const {
    for (const auto& sequence : request.sequences) {
      const std::vector<int32_t> prompt(sequence->prompt().begin(), sequence->prompt().end());
      EXPECT_EQ(std::vector<int32_t>(sequence->output().begin(), sequence->output().end()),
                expected_output(prompt, *request.input.params.max_tokens));
    }
  }

  Scheduler& scheduler() { return scheduler_; }
  BlockPool& pool() { return pool_; }
  const std::vector<std::unique_ptr<EngineRequest>>& requests() const { return requests_; }

 private:
  struct Sampled {
    Sequence* sequence;
    int32_t token;
  };
  // The sequence's tokens with the one that the scheduler does not know yet.
  std::vector<int32_t> tokens_of(const Sequence& sequence) const {
    std::vector<int32_t> tokens = sequence.tokens;
    for (const Sampled& one : under_way_) {
      if (one.sequence == &sequence) tokens.push_back(one.token);
    }
    return tokens;
  }

  int32_t& kv_at(const Sequence& sequence, int64_t position) {
    const std::span<const int32_t> table(tables_.row(sequence.table_row), static_cast<size_t>(sequence.blocks));
    const int64_t slot = slot_of(table, position, kBlockSize);
    EXPECT_GE(slot, 0);
    return kv_[static_cast<size_t>(slot)];
  }

  SchedulerOptions options_;
  BlockPool pool_;
  BlockTables tables_;
  Scheduler scheduler_;
  std::vector<int32_t> kv_;
  std::vector<std::unique_ptr<EngineRequest>> requests_;
  std::vector<Sampled> under_way_;
  bool ahead_ = false;
};

TEST(Scheduler, BatchesDecodesAndChunksPrompts) {
  SchedulerOptions options;
  options.max_num_batched_tokens = 16;
  FakeEngine engine(options, 64);
  engine.submit(some_tokens(50, 1), 8);
  engine.submit(some_tokens(5, 2), 8);
  EXPECT_EQ(engine.step(), 16);
  EXPECT_EQ(engine.step(), 16);
  EXPECT_EQ(engine.step(), 16);
  EXPECT_EQ(engine.step(), 2 + 5);  // the rest of the first prompt, and the second
  EXPECT_EQ(engine.step(), 2);      // two decodes
  engine.run_until_idle();
  for (const auto& request : engine.requests()) engine.expect_right(*request);
}

TEST(Scheduler, WithoutChunkingAPromptRunsWhole) {
  SchedulerOptions options;
  options.max_num_batched_tokens = 64;
  options.chunked_prefill = false;
  FakeEngine engine(options, 64);
  engine.submit(some_tokens(40, 1), 4);
  engine.submit(some_tokens(40, 2), 4);
  EXPECT_EQ(engine.step(), 40);
  EXPECT_EQ(engine.step(), 1 + 40);
  engine.run_until_idle();
  for (const auto& request : engine.requests()) engine.expect_right(*request);
}

// A prompt that is wholly in the cache still has its last token computed; a longer prompt finds all of it.
TEST(Scheduler, PrefixCacheLeavesOneTokenToCompute) {
  for (const int length : {1, 15, 16, 17, 31, 32, 33, 48}) {
    FakeEngine engine({}, 64);
    engine.submit(some_tokens(length, 3), 8);
    engine.run_until_idle();
    const EngineRequest& again = engine.submit(some_tokens(length, 3), 8);
    engine.run_until_idle();
    const int64_t cached = again.sequences[0]->cached_tokens;
    EXPECT_EQ(cached, (length - 1) / kBlockSize * kBlockSize) << length;
    engine.submit(some_tokens(length + 20, 3), 8);
    engine.run_until_idle();
    EXPECT_EQ(engine.requests()[2]->sequences[0]->cached_tokens, length / kBlockSize * kBlockSize) << length;
    for (const auto& request : engine.requests()) engine.expect_right(*request);
    EXPECT_EQ(engine.pool().free_blocks(), 64);
  }
}

TEST(Scheduler, CacheSaltSeparatesTenants) {
  FakeEngine engine({}, 64);
  engine.submit(some_tokens(40, 3), 2);
  engine.run_until_idle();
  EngineRequest& other = engine.submit(some_tokens(40, 3), 2);
  other.input.cache_salt = "other";
  engine.run_until_idle();
  EXPECT_EQ(other.sequences[0]->cached_tokens, 0);
}

TEST(Scheduler, PromptLogprobsDoNotReadTheCacheAndAreBounded) {
  SchedulerOptions options;
  options.max_prompt_logprob_rows = 10;
  FakeEngine engine(options, 64);
  engine.submit(some_tokens(33, 0), 1);
  engine.run_until_idle();
  EngineRequest& scored = engine.submit(some_tokens(33, 0), 1, 1, 0, true);
  EngineRequest& neighbour = engine.submit(some_tokens(33, 0), 4);
  engine.run_until_idle();
  EXPECT_EQ(scored.sequences[0]->cached_tokens, 0);
  EXPECT_EQ(neighbour.sequences[0]->cached_tokens, 32);
  engine.expect_right(scored);
  engine.expect_right(neighbour);
}

TEST(Scheduler, ChoicesShareTheirPrompt) {
  FakeEngine engine({}, 64);
  engine.submit(some_tokens(64, 5), 6, 4);
  EXPECT_EQ(engine.step(), 64);          // the first choice alone
  EXPECT_EQ(engine.step(), 1 + 3 * 16);  // the others have the last block left to compute
  engine.run_until_idle();
  engine.expect_right(*engine.requests()[0]);
}

TEST(Scheduler, PreemptsTheLastAndRecomputesIt) {
  SchedulerOptions options;
  options.prefix_caching = false;
  FakeEngine engine(options, 8);
  engine.submit(some_tokens(30, 1), 60);  // grows to 6 blocks
  engine.submit(some_tokens(30, 2), 60);
  engine.run_until_idle();
  EXPECT_GT(engine.scheduler().preemptions(), 0);
  EXPECT_EQ(engine.requests()[0]->sequences[0]->preemptions, 0) << "the first to come is served";
  for (const auto& request : engine.requests()) engine.expect_right(*request);
  EXPECT_EQ(engine.pool().free_blocks(), 8);
}

// vllm#23347: a sequence that was placed in this very step loses its blocks to a more urgent one.
TEST(Scheduler, PriorityPreemptsASequenceAlreadyPlaced) {
  for (const int32_t n : {1, 2}) {
    SchedulerOptions options;
    options.priority = true;
    options.prefix_caching = false;
    FakeEngine engine(options, 10 * n);
    for (int i = 0; i < 3; ++i) engine.submit(some_tokens(40, i), 40, n, 5);
    for (int i = 0; i < 3; ++i) engine.step();
    engine.submit(some_tokens(40, 9), 40, n, -10);
    engine.run_until_idle();
    EXPECT_GT(engine.scheduler().preemptions(), 0);
    EXPECT_EQ(engine.requests()[3]->sequences[0]->preemptions, 0);
    for (const auto& request : engine.requests()) engine.expect_right(*request);
    EXPECT_EQ(engine.pool().free_blocks(), 10 * n);
  }
}

TEST(Scheduler, AbortBeforeTheFirstScheduleAndInTheLastStep) {
  FakeEngine engine({}, 16);
  EngineRequest& never = engine.submit(some_tokens(40, 1), 4);
  engine.abort(never);
  EXPECT_TRUE(engine.scheduler().idle());
  EngineRequest& last = engine.submit(some_tokens(40, 2), 2);
  engine.step();
  engine.scheduler().schedule();  // its last step is under way
  engine.abort(last);
  engine.scheduler().step_submitted();
  EXPECT_TRUE(engine.scheduler().idle());
  EXPECT_EQ(engine.pool().free_blocks(), 16);
}

TEST(Scheduler, RandomLoadsGiveTheTokensOfUnloadedRuns) {
  std::mt19937 random(11);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 150; ++round) {
    SchedulerOptions options;
    options.max_num_batched_tokens = pick(1, 4) == 1 ? 16 : pick(17, 200);
    options.max_num_seqs = pick(1, 12);
    options.prefix_caching = pick(0, 2) > 0;
    options.priority = pick(0, 1) == 1;
    options.max_prompt_logprob_rows = pick(1, 40);
    const int32_t blocks = pick(16, 40);  // 16 blocks hold one sequence of 256 tokens
    FakeEngine engine(options, blocks);
    if (pick(0, 1) == 1) engine.run_ahead();
    std::vector<bool> aborted;
    for (int i = 0; i < 25; ++i) {
      engine.submit(some_tokens(pick(1, 200), pick(0, 3)), pick(1, 56), pick(0, 5) == 0 ? 3 : 1, pick(-2, 2),
                    pick(0, 6) == 0);
      aborted.push_back(false);
      for (int steps = pick(0, 3); steps > 0 && !engine.scheduler().idle(); --steps) engine.step();
      if (pick(0, 6) == 0) {
        const auto victim = static_cast<size_t>(pick(0, i));
        engine.abort(*engine.requests()[victim]);
        aborted[victim] = true;
      }
    }
    engine.run_until_idle();
    for (size_t i = 0; i < aborted.size(); ++i) {
      if (!aborted[i]) engine.expect_right(*engine.requests()[i]);
    }
    EXPECT_EQ(engine.pool().free_blocks(), blocks);
    if (HasFailure()) {
      ADD_FAILURE() << "in round " << round;
      return;
    }
  }
}

}  // namespace
}  // namespace quire
