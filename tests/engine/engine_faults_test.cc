// What goes wrong in the engine and around it: faults in a step, no memory, full queues, shutdown, clients that leave.
// Over a model that is a hash (fake_model.h). Whatever it is, every request ends and every block comes back.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <random>
#include <thread>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/generation_state.h"
#include "engine/stats.h"
#include "fake_model.h"

// Allocations that can be made to fail: operator new has nowhere but globals to look. Not inlined: GCC 12 takes an
// inlined pair of these for a mismatch.
namespace {
std::atomic<long> allocations_left{-1};  // of the threads it applies to, until one fails; -1: none will
std::atomic<long> allocations_seen{0};   // of these threads
thread_local bool applies_here = false;
}  // namespace
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (applies_here) {
    allocations_seen.fetch_add(1, std::memory_order_relaxed);
    if (allocations_left.load(std::memory_order_relaxed) >= 0 && allocations_left.fetch_sub(1) == 0) {
      throw std::bad_alloc();
    }
  }
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
// The library's own would take from another heap than ours under asan; std::stable_sort uses it.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace quire {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Makes the pool's worker 1 one of the threads whose allocations are watched.
void watch_worker(ThreadPool& pool, bool watch) {
  pool.run([&](int worker) {
    if (worker == 1) applies_here = watch;
  });
}

TEST(EngineFaults, AFailedWorkerFailsItsStepOnly) {
  EngineConfig config = FakeEngine::small_config();
  config.max_num_seqs = 2;
  FakeEngine fake(config);
  fake.controls->hold = true;
  const auto bad = fake.engine->submit(FakeEngine::greedy({1, FakeModel::kWorkerPoison}, 4));
  const auto waiting = fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 4));
  const auto later = fake.engine->submit(FakeEngine::greedy({3, 2, 1}, 4));
  fake.release();
  EXPECT_EQ(Answer(*bad).finish[0], FinishReason::kError);
  const Answer beside(*waiting);  // in the same step or not
  if (beside.finish[0] != FinishReason::kError) {
    EXPECT_EQ(beside.tokens[0], FakeModel::expected({1, 2, 3}, 4));
  }
  EXPECT_EQ(Answer(*later).tokens[0], FakeModel::expected({3, 2, 1}, 4));
  fake.expect_quiet();
}

TEST(EngineFaults, NoMemoryToSampleWithFailsTheStepOnly) {
  EngineConfig config = FakeEngine::small_config();
  config.max_num_seqs = 2;
  FakeEngine fake(config);
  std::atomic<bool> trouble{false};
  fake.controls->before_forward = [&](const StepInput& input) {
    if (input.logits_rows.size() < 2 || trouble.exchange(true)) return;
    watch_worker(*fake.threads, true);  // the second row is its
    allocations_left = 0;
  };
  fake.controls->hold = true;
  std::vector<std::shared_ptr<Generation>> all;
  for (int i = 0; i < 4; ++i) {
    GenerateRequest request = FakeEngine::greedy({1, 2, i}, 8);
    request.params.logprobs = 3;
    all.push_back(fake.engine->submit(std::move(request)));
  }
  fake.release();
  int failed = 0;
  for (int i = 0; i < 4; ++i) {
    const Answer answer(*all[static_cast<size_t>(i)]);
    if (answer.finish[0] == FinishReason::kError) {
      ++failed;
    } else {
      EXPECT_EQ(answer.tokens[0], FakeModel::expected({1, 2, i}, 8));
    }
  }
  EXPECT_EQ(failed, 2) << "the two of the step";
  fake.expect_quiet();
}

// The engine thread's allocations fail, one after the other, wherever they are: while it takes requests in, schedules,
// computes, hands over, logs.
TEST(EngineFaults, AnyAllocationOfTheEngineThreadMayFail) {
  EngineConfig config = FakeEngine::small_config();
  config.num_gpu_blocks_override = 20;
  FakeEngine fake(config);
  fake.controls->before_forward = [](const StepInput&) { applies_here = true; };
  const std::vector<int32_t> prompt = FakeEngine::prompt(20, 1);
  EXPECT_EQ(Answer(*fake.engine->submit(FakeEngine::greedy(prompt, 2))).tokens[0], FakeModel::expected(prompt, 2));
  int failed = 0, finished = 0;
  for (int nth = 0; nth < 150; ++nth) {
    allocations_left = nth;
    std::vector<std::shared_ptr<Generation>> all;
    for (int i = 0; i < 4; ++i) {
      GenerateRequest request = FakeEngine::greedy(FakeEngine::prompt(70, i + nth), 6);
      request.params.logprobs = 2;
      request.params.prompt_logprobs = i == 1 ? std::optional<int32_t>(1) : std::nullopt;
      if (i == 2) request.params.n = 2, request.params.temperature = 1;
      all.push_back(fake.engine->submit(std::move(request)));
    }
    for (int i = 0; i < 4; ++i) {
      const Answer answer(*all[static_cast<size_t>(i)], i == 2 ? 2 : 1);
      for (const FinishReason finish : answer.finish) {
        EXPECT_TRUE(finish == FinishReason::kError || finish == FinishReason::kLength);
        ++(finish == FinishReason::kError ? failed : finished);
      }
    }
    allocations_left = -1;
    EXPECT_EQ(Answer(*fake.engine->submit(FakeEngine::greedy(prompt, 2))).tokens[0], FakeModel::expected(prompt, 2));
    fake.expect_quiet();
    if (testing::Test::HasFailure()) FAIL() << "allocation " << nth;
  }
  EXPECT_GT(failed, 100);
  EXPECT_GT(finished, 100);
}

TEST(EngineFaults, AListenerThatThrowsHarmsNobody) {
  FakeEngine fake;
  fake.controls->hold = true;
  const auto one = fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 8));
  const auto other = fake.engine->submit(FakeEngine::greedy({3, 2, 1}, 8));
  one->set_listener([] { throw std::runtime_error("no memory to post with"); });
  fake.release();
  EXPECT_EQ(Answer(*one).tokens[0], FakeModel::expected({1, 2, 3}, 8));
  EXPECT_EQ(Answer(*other).tokens[0], FakeModel::expected({3, 2, 1}, 8));
  fake.expect_quiet();
}

// However many tokens are queued, and however few of them the client has taken.
TEST(EngineFaults, LastEventsNeedNoMemory) {
  constexpr int32_t kChoices = 3;
  for (int tokens = 0; tokens < 20; ++tokens) {
    GenerationState state("id", 0, kChoices, std::make_shared<EngineQueue>(1));
    GenerationEvent event;
    event.token = 1;
    for (int i = 0; i < tokens; ++i) state.push(event);
    applies_here = true;
    allocations_left = 0;
    for (event.choice = 0; event.choice < kChoices; ++event.choice) {
      event.finish = FinishReason::kError;
      EXPECT_NO_THROW(state.push(event)) << tokens;
    }
    applies_here = false;
    allocations_left = -1;
    std::vector<GenerationEvent> events;
    EXPECT_TRUE(state.poll(events));
    EXPECT_EQ(events.size(), tokens + kChoices);
  }
}

// A row of prompt log-probabilities is one allocation: its own.
TEST(EngineFaults, RowsOfPromptLogprobsShareTheirScratch) {
  FakeEngine fake;
  fake.controls->before_forward = [&](const StepInput&) {
    applies_here = true;
    watch_worker(*fake.threads, true);
  };
  std::vector<long> counts;
  for (const int length : {10, 60}) {
    const long before = allocations_seen;
    GenerateRequest request = FakeEngine::greedy(FakeEngine::prompt(length, 1), 1);
    request.params.prompt_logprobs = 1;
    EXPECT_EQ(Answer(*fake.engine->submit(std::move(request))).finish[0], FinishReason::kLength);
    fake.expect_quiet();
    counts.push_back(allocations_seen - before);
  }
  // The fake model's forward() makes a few more for a longer prompt.
  EXPECT_LT(counts[1] - counts[0], 50 + 20);
}

TEST(EngineFaults, AFailedStepFailsItsRequestsOnly) {
  EngineConfig config = FakeEngine::small_config();
  config.max_num_seqs = 1;  // one request, one step
  FakeEngine fake(config);
  for (int round = 0; round < 2; ++round) {
    const auto bad = fake.engine->submit(FakeEngine::greedy({1, FakeModel::kPoison, 2}, 4));
    const auto good = fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 4));
    const Answer answer(*bad);
    EXPECT_EQ(answer.finish[0], FinishReason::kError);
    EXPECT_NE(answer.last[0].error, "");
    EXPECT_EQ(answer.last[0].error.find("0x"), std::string::npos) << "no cause from inside, no address";
    EXPECT_EQ(Answer(*good).tokens[0], FakeModel::expected({1, 2, 3}, 4));
  }
  EXPECT_TRUE(fake.engine->healthy());
  for (int i = 0; i < 3; ++i) {
    const auto bad = fake.engine->submit(FakeEngine::greedy({FakeModel::kPoison}, 4));
    EXPECT_EQ(Answer(*bad).finish[0], FinishReason::kError);
  }
  EXPECT_FALSE(fake.engine->healthy()) << "three in a row";
  const auto good = fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 4));
  EXPECT_EQ(Answer(*good).tokens[0], FakeModel::expected({1, 2, 3}, 4));
  EXPECT_TRUE(fake.engine->healthy());
  fake.expect_quiet();
}

TEST(EngineFaults, ARowWithoutAnyFiniteLogitEndsAlone) {
  FakeEngine fake;
  const auto good = fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 30));
  const auto bad = fake.engine->submit(FakeEngine::greedy({1, FakeModel::kNan}, 30));
  EXPECT_EQ(Answer(*bad).finish[0], FinishReason::kError);
  EXPECT_EQ(Answer(*good).tokens[0], FakeModel::expected({1, 2, 3}, 30));
  fake.expect_quiet();
}

TEST(EngineFaults, ARequestThatLeavesNoTokenIsToldSo) {
  FakeEngine fake;
  GenerateRequest request = FakeEngine::greedy({1, 2, 3}, 30);
  request.params.allowed_token_ids = {5};
  request.params.stop_token_ids = {5};
  request.params.min_tokens = 1;
  const auto generation = fake.engine->submit(std::move(request));
  std::vector<GenerationEvent> events;
  while (generation->wait(events, std::chrono::seconds(5)) && events.empty()) {
  }
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].finish, FinishReason::kError);
  EXPECT_EQ(events[0].error_kind, ErrorKind::kInvalidArgument);
  EXPECT_NE(events[0].error.find("allowed_token_ids"), std::string::npos);
  fake.expect_quiet();
}

TEST(EngineFaults, RefusesPastTheQueueLimitAndAnswersTheRest) {
  EngineConfig config = FakeEngine::small_config();
  config.max_num_queued_reqs = 8;
  config.max_num_seqs = 4;
  FakeEngine fake(config);
  fake.controls->hold = true;
  std::vector<std::shared_ptr<Generation>> accepted;
  for (int i = 0; i < 100; ++i) {
    try {
      accepted.push_back(fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 20)));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnavailable);
      EXPECT_NE(std::string(error.what()).find('8'), std::string::npos) << "the limit";
    }
  }
  EXPECT_EQ(accepted.size(), 4 + 8) << "a burst that the engine thread has not seen yet";
  fake.release();
  for (const auto& generation : accepted) EXPECT_EQ(Answer(*generation).finish[0], FinishReason::kLength);
  fake.expect_quiet();
  GenerateRequest wide = FakeEngine::greedy({1, 2, 3}, 2);
  wide.params.temperature = 1;
  wide.params.n = 100;  // more choices than the queue has places
  const auto generation = fake.engine->submit(std::move(wide));
  EXPECT_EQ(Answer(*generation, 100).finish[99], FinishReason::kLength);
}

TEST(EngineFaults, ShutdownWaitsThenAborts) {
  for (const int timeout_ms : {0, 10000}) {
    FakeEngine fake;
    fake.controls->step_ms = 1;
    const auto generation = fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 150));
    std::vector<GenerationEvent> events;
    while (events.empty()) ASSERT_TRUE(generation->wait(events, milliseconds(100)));
    const auto begin = Clock::now();
    std::thread stopper([&] { fake.engine->shutdown(milliseconds(timeout_ms)); });
    const Answer answer(*generation);
    stopper.join();
    EXPECT_LT(Clock::now() - begin, milliseconds(5000));
    EXPECT_EQ(answer.finish[0], timeout_ms == 0 ? FinishReason::kAbort : FinishReason::kLength);
    try {
      fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 1));
      FAIL() << "accepted after shutdown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnavailable);
    }
  }
}

TEST(EngineFaults, DestructionEndsWhatRuns) {
  std::shared_ptr<Generation> generation;
  {
    FakeEngine fake;
    fake.controls->step_ms = 1;
    generation = fake.engine->submit(FakeEngine::greedy({1, 2, 3}, 200));
  }
  EXPECT_EQ(Answer(*generation).finish[0], FinishReason::kAbort);
}

// Submitting, cancelling and dropping from many threads at once, while it shuts down.
TEST(EngineFaults, ManyClientsAtOnce) {
  EngineConfig config = FakeEngine::small_config();
  config.num_gpu_blocks_override = 32;
  FakeEngine fake(config);
  fake.controls->step_ms = 1;  // so that they are still at work when it shuts down
  std::vector<std::thread> clients;
  clients.reserve(8);
  std::atomic<int> right{0}, refused{0};
  for (int client = 0; client < 8; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<uint32_t>(client));
      for (int i = 0; i < 40; ++i) {
        const auto prompt = FakeEngine::prompt(1 + static_cast<int>(random() % 90), client);
        std::shared_ptr<Generation> generation;
        try {
          generation = fake.engine->submit(FakeEngine::greedy(prompt, 12));
        } catch (const Error&) {
          ++refused;
          continue;
        }
        if (random() % 4 == 0) continue;  // gone
        const Answer answer(*generation);
        if (answer.finish[0] == FinishReason::kAbort) continue;
        EXPECT_EQ(answer.tokens[0], FakeModel::expected(prompt, 12));
        ++right;
      }
    });
  }
  std::this_thread::sleep_for(milliseconds(30));
  fake.engine->shutdown(milliseconds(5));
  for (std::thread& client : clients) client.join();
  EXPECT_GT(right, 0);
  EXPECT_GT(refused, 0);
  fake.expect_quiet();
}

// Everything at once, and then a shutdown in the middle of it.
TEST(EngineFaults, LoadWithFaultsAndAbortsLeavesNothingBehind) {
  for (const bool shut_down : {false, true}) {
    EngineConfig config = FakeEngine::small_config();
    config.num_gpu_blocks_override = 24;  // far too few for all of them
    config.max_num_batched_tokens = 32;
    FakeEngine fake(config);
    std::mt19937 random(11);
    std::vector<std::pair<std::shared_ptr<Generation>, std::vector<int32_t>>> running;
    for (int i = 0; i < 60; ++i) {
      auto prompt = FakeEngine::prompt(1 + static_cast<int>(random() % 200), static_cast<int>(random() % 4));
      if (i % 20 == 7) prompt.back() = FakeModel::kPoison;
      if (i % 20 == 13) prompt.back() = FakeModel::kNan;
      running.emplace_back(fake.engine->submit(FakeEngine::greedy(prompt, 40)), prompt);
      if (i % 5 == 4) running[random() % running.size()].first->cancel();
    }
    if (shut_down) fake.engine->shutdown(milliseconds(20));
    int right = 0;
    for (auto& [generation, prompt] : running) {
      const Answer answer(*generation);
      EXPECT_NE(answer.finish[0], FinishReason::kNone);
      if (answer.finish[0] == FinishReason::kLength) {
        EXPECT_EQ(answer.tokens[0], FakeModel::expected(prompt, 40));
        ++right;
      }
    }
    if (!shut_down) {
      EXPECT_GT(right, 10);
      EXPECT_GT(fake.engine->metrics().snapshot().preemptions, 0);
      EXPECT_GT(fake.engine->metrics().snapshot().prefix_cache_hits, 0);
    }
    fake.expect_quiet();
  }
}

// The engine thread is in a step: what was submitted meanwhile is still in its queue when the shutdown begins.
TEST(EngineFaults, ShutdownEndsWhatTheEngineHasNotYetTakenIn) {
  for (const int timeout_ms : {0, 30}) {
    FakeEngine fake;
    fake.controls->hold = true;
    std::vector<std::shared_ptr<Generation>> all;
    all.reserve(20);
    for (int i = 0; i < 20; ++i) {
      all.push_back(fake.engine->submit(FakeEngine::greedy({1, 2, i}, 200)));
      while (fake.controls->steps == 0) std::this_thread::yield();  // it is in the first one's, and stays there
    }
    std::atomic<bool> done{false};
    std::thread stopper([&] {
      fake.engine->shutdown(milliseconds(timeout_ms));
      done = true;
    });
    std::this_thread::sleep_for(milliseconds(60));
    EXPECT_FALSE(done) << "twenty requests are open";
    fake.controls->step_ms = 20;  // none of them could finish soon
    fake.release();
    stopper.join();
    std::vector<GenerationEvent> events;
    for (const auto& generation : all) {
      events.clear();
      EXPECT_TRUE(generation->poll(events));
      ASSERT_FALSE(events.empty()) << "no last event when the shutdown is over";
      EXPECT_EQ(events.back().finish, FinishReason::kAbort);
    }
    fake.expect_quiet();
  }
}

}  // namespace
}  // namespace quire
