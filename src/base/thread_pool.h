#pragma once
// The pool of compute workers. The thread that calls run() is worker 0; the others spin at most 50 us for the next job
// and then sleep on a futex, so an idle process uses no CPU. One caller at a time.
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace quire {

class ThreadPool {
 public:
  // workers >= 1, the caller included. cpus: empty = not pinned, else worker i runs on cpus[i % size]. Worker 0 is
  // pinned by pin_caller(), which the engine thread calls once.
  explicit ThreadPool(int workers, std::vector<int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const;
  void pin_caller() const;

  // Calls job(context, worker) once on every worker and returns when all are done. If some throw, one of their
  // exceptions goes on to the caller then. No allocation.
  using Job = void (*)(void* context, int worker);
  void run(Job job, void* context);

  // fn(worker) on every worker.
  template <class Fn>
  void run(Fn&& fn) {
    using Callable = std::remove_reference_t<Fn>;
    auto* context = const_cast<void*>(static_cast<const void*>(&fn));  // given its type, const or not, back in the job
    run([](void* callable, int worker) { (*static_cast<Callable*>(callable))(worker); }, context);
  }

  // Splits [0, items) in contiguous ranges, one for each worker: fn(begin, end, worker). Which worker gets which range
  // depends on items and workers() only.
  template <class Fn>
  void parallel_for(int64_t items, Fn&& fn) {
    const int64_t n = workers();
    if (n == 1 || items <= 1) {
      if (items > 0) fn(int64_t{0}, items, 0);
      return;
    }
    run([&](int worker) {
      const int64_t begin = items * worker / n, end = items * (worker + 1) / n;
      if (begin < end) fn(begin, end, worker);
    });
  }

  // parallel_for where the work is worth waking the others, else all of it here. cost: of all items, in simple element
  // operations.
  template <class Fn>
  void parallel_for_if_large(int64_t items, int64_t cost, Fn&& fn) {
    constexpr int64_t kWorthSharing = 1 << 14;
    if (cost >= kWorthSharing) return parallel_for(items, fn);
    if (items > 0) fn(int64_t{0}, items, 0);
  }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
