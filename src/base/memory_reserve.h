#pragma once
// Memory put aside for the moment when there is none: operator new that fails gives it back to the heap once and tries
// again. So what can't deal with a failing allocation (the destructors of nlohmann::json allocate) still gets through,
// and requests fail by std::bad_alloc from the next failure on.
#include <atomic>
#include <cstddef>
#include <new>

namespace quire {

class MemoryReserve {
 public:
  // Serves the whole process while it lives. One at a time.
  explicit MemoryReserve(size_t bytes);
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Puts memory aside again if it was given back and there is enough by now. Any thread; cheap.
  void refill() noexcept;
  bool full() const { return memory_.load(std::memory_order_relaxed) != nullptr; }

 private:
  void release();  // throws std::bad_alloc if there is nothing to give back

  static std::atomic<MemoryReserve*> current_;  // a new_handler has no argument
  size_t bytes_;
  std::atomic<void*> memory_{nullptr};
  std::new_handler before_;
};

}  // namespace quire
