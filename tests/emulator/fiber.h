#pragma once
// Contexts of execution that switch by hand, known to AddressSanitizer.
#include <cstddef>

namespace emulator {

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Makes the fiber begin with entry() when it is switched to for the first time. What it did before is forgotten.
  // entry() must not return.
  void start(void (*entry)());

  // Of a fiber that was left for good in the middle of its work: its stack is as good as new.
  void abandon();

  // From the fiber that runs to another one.
  static void switch_to(Fiber& from, Fiber& to);
  // The first thing that entry() has to do.
  static void arrived();

 private:
  void* stack_pointer_ = nullptr;
  std::byte* stack_ = nullptr;  // null for the context that the program began with
  const void* bottom_ = nullptr;
  size_t size_ = 0;
};

}  // namespace emulator
