#pragma once
#include <chrono>
#include <new>
#include <thread>

namespace quire {

// Starts an operation without which a thread's work would end for good: tries again until there is memory for it.
template <typename Start>
void insist(Start start) {
  while (true) {
    try {
      return start();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace quire
