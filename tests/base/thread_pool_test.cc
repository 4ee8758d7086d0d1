#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "base/numa.h"

// Counts allocations of the whole program, so that a test can show that run() makes none. Not inlined: GCC 12 takes an
// inlined pair of these for a mismatch.
namespace {
std::atomic<long> allocations{0};  // NOLINT: operator new has nowhere else to count
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace quire {
namespace {

TEST(ThreadPool, EveryWorkerRunsOnceAndCallerIsWorkerZero) {
  for (const int workers : {1, 2, 3, 7}) {
    ThreadPool pool(workers);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> calls(static_cast<size_t>(workers));
      std::thread::id zero;
      pool.run([&](int worker) {
        ++calls[static_cast<size_t>(worker)];
        if (worker == 0) zero = std::this_thread::get_id();
      });
      EXPECT_EQ(calls, std::vector<int>(static_cast<size_t>(workers), 1));
      EXPECT_EQ(zero, std::this_thread::get_id());
    }
  }
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(4);
  for (int round = 0; round < 30; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> calls{0};
    pool.run([&](int) { ++calls; });
    EXPECT_EQ(calls, 4);
  }
}

TEST(ThreadPool, CallerWaitsForASlowWorker) {
  ThreadPool pool(2);
  std::atomic<bool> done{false};
  pool.run([&](int worker) {
    if (worker == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
  });
  EXPECT_TRUE(done);
}

TEST(ThreadPool, AThrowingJobThrowsAtItsCallerWhenAllAreDone) {
  for (const int thrower : {0, 1, 2, -1}) {  // -1: all of them
    ThreadPool pool(3);
    std::atomic<int> done{0};
    const auto job = [&](int worker) {
      if (worker == thrower || thrower == -1) throw std::bad_alloc();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++done;
    };
    EXPECT_THROW(pool.run(job), std::bad_alloc);
    EXPECT_EQ(done, thrower == -1 ? 0 : 2);
    pool.run([&](int) { ++done; });
    EXPECT_EQ(done, thrower == -1 ? 3 : 5) << "the next job is none the worse for it";
  }
}

TEST(ThreadPool, RangesCoverItemsOnceInOrder) {
  for (const int workers : {1, 2, 5}) {
    ThreadPool pool(workers);
    for (const int64_t items : {0, 1, 2, 4, 5, 6, 17, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(items));
      pool.parallel_for(items, [&](int64_t begin, int64_t end, int worker) {
        EXPECT_LT(begin, end);
        EXPECT_TRUE(worker >= 0 && worker < workers);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const auto& count : seen) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, RunDoesNotAllocate) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  pool.run([&](int) { ++calls; });
  const long before = allocations;
  for (int i = 0; i < 100; ++i) pool.run([&](int) { ++calls; });
  pool.parallel_for(100, [&](int64_t, int64_t, int) { ++calls; });
  EXPECT_EQ(allocations - before, 0);
}

TEST(ThreadPool, IdleUsesNoProcessor) {
  ThreadPool pool(4);
  pool.run([](int) {});
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the workers' 50 us of spinning
  const double before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(used() - before, 0.02);
}

TEST(ThreadPool, PinsWorkersAndCaller) {
  const std::vector<int> cpus = available_cpus();
  ThreadPool pool(3, {cpus.back()});
  std::thread([&] {
    pool.pin_caller();
    pool.run([&](int) {
      EXPECT_EQ(available_cpus(), std::vector<int>{cpus.back()});
      EXPECT_EQ(sched_getcpu(), cpus.back());
    });
  }).join();
  EXPECT_EQ(available_cpus(), cpus);
}

}  // namespace
}  // namespace quire
