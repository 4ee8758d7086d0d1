#include "base/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSpin = std::chrono::microseconds(50);

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The word of a futex is a plain 32-bit integer; std::atomic<uint32_t> has its size and address.
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

void pin_thread(pthread_t thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  pthread_setaffinity_np(thread, sizeof set, &set);  // a processor taken away since start-up only costs the pinning
}

// Waits until word differs from `old`: spins first, then sleeps. `sleepers` tells the writer whether a wake-up call is
// needed.
uint32_t wait_for_change(std::atomic<uint32_t>& word, uint32_t old, std::atomic<uint32_t>& sleepers) {
  const Clock::time_point deadline = Clock::now() + kSpin;
  for (int i = 0;; ++i) {
    const uint32_t now = word.load(std::memory_order_acquire);
    if (now != old) return now;
    cpu_relax();
    if ((i & 63) == 63 && Clock::now() > deadline) break;
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  uint32_t now;
  while ((now = word.load(std::memory_order_seq_cst)) == old) futex_wait(word, old);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
  return now;
}

}  // namespace

struct ThreadPool::State {
  int workers = 1;
  std::vector<int> cpus;
  std::vector<std::thread> threads;

  // One job at a time: the caller writes job and context, then raises epoch; each worker lowers `left` when it is done.
  Job job = nullptr;
  void* context = nullptr;
  bool stop = false;
  alignas(64) std::atomic<uint32_t> epoch{0};
  std::atomic<uint32_t> sleeping_workers{0};
  alignas(64) std::atomic<uint32_t> left{0};
  std::atomic<uint32_t> sleeping_caller{0};
  std::atomic<bool> failed{false};
  std::exception_ptr failure;  // written by the first to set `failed`, read when all are done

  void start_epoch() {
    left.store(static_cast<uint32_t>(workers - 1), std::memory_order_relaxed);
    epoch.fetch_add(1, std::memory_order_seq_cst);
    if (sleeping_workers.load(std::memory_order_seq_cst) != 0) futex_wake_all(epoch);
  }

  void do_job(int worker) {
    try {
      job(context, worker);
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  }

  void work(int worker) {
    uint32_t seen = 0;
    for (;;) {
      seen = wait_for_change(epoch, seen, sleeping_workers);
      if (stop) return;
      do_job(worker);
      if (left.fetch_sub(1, std::memory_order_seq_cst) == 1 && sleeping_caller.load(std::memory_order_seq_cst) != 0) {
        futex_wake_all(left);
      }
    }
  }
};

ThreadPool::ThreadPool(int workers, std::vector<int> cpus) : state_(std::make_unique<State>()) {
  if (workers < 1) throw std::logic_error("a thread pool needs at least one worker");
  state_->workers = workers;
  state_->cpus = std::move(cpus);
  for (int worker = 1; worker < workers; ++worker) {
    std::thread& thread = state_->threads.emplace_back([state = state_.get(), worker] { state->work(worker); });
    pthread_setname_np(thread.native_handle(), "quire-worker");
    if (!state_->cpus.empty()) {
      pin_thread(thread.native_handle(), state_->cpus[static_cast<size_t>(worker) % state_->cpus.size()]);
    }
  }
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->start_epoch();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::workers() const { return state_->workers; }

void ThreadPool::pin_caller() const {
  if (!state_->cpus.empty()) pin_thread(pthread_self(), state_->cpus[0]);
}

void ThreadPool::run(Job job, void* context) {
  State& state = *state_;
  if (state.workers == 1) return job(context, 0);
  state.job = job;
  state.context = context;
  state.start_epoch();
  state.do_job(0);
  uint32_t left = state.left.load(std::memory_order_acquire);
  while (left != 0) left = wait_for_change(state.left, left, state.sleeping_caller);
  if (state.failed.load(std::memory_order_relaxed)) {
    state.failed.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(state.failure, nullptr));
  }
}

}  // namespace quire
