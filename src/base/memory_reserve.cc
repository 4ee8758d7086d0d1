#include "base/memory_reserve.h"

#include <cstdlib>

namespace quire {

std::atomic<MemoryReserve*> MemoryReserve::current_{nullptr};

MemoryReserve::MemoryReserve(size_t bytes) : bytes_(bytes) {
  refill();
  current_.store(this);
  before_ = std::set_new_handler([] {
    MemoryReserve* const reserve = current_.load();
    if (reserve == nullptr) throw std::bad_alloc();
    reserve->release();
  });
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(before_);
  current_.store(nullptr);
  std::free(memory_.load());
}

void MemoryReserve::refill() noexcept {
  if (full()) return;
  void* memory = std::malloc(bytes_);
  void* none = nullptr;
  if (!memory_.compare_exchange_strong(none, memory)) std::free(memory);  // another thread was first
}

void MemoryReserve::release() {
  void* const memory = memory_.exchange(nullptr);
  if (memory == nullptr) throw std::bad_alloc();
  std::free(memory);
}

}  // namespace quire
