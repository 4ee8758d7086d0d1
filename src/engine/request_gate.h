#pragma once
// Counts what is open in the engine: refuses past the queue's limit and once the engine shuts down, and tells when
// nothing is left. Touched once a request, not once a token.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace quire {

class RequestGate {
 public:
  enum class Entry : uint8_t { kOpen, kFull, kClosed };

  // limit: sequences that are open before another request is turned away.
  explicit RequestGate(int64_t limit) : limit_(limit) {}

  // A request whose choices are so many sequences enters. One that does is counted until leave(). The last to enter may
  // overshoot the limit, so that no request is too large to ever get in.
  Entry enter(int64_t sequences) {
    const std::lock_guard lock(mutex_);
    if (closed_) return Entry::kClosed;
    if (open_ >= limit_) return Entry::kFull;
    open_ += sequences;
    return Entry::kOpen;
  }
  void leave(int64_t sequences) {
    const std::lock_guard lock(mutex_);
    open_ -= sequences;
    if (open_ == 0) empty_.notify_all();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  // False if something is still open at that time.
  bool wait_until_empty(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return empty_.wait_until(lock, deadline, [&] { return open_ == 0; });
  }
  void wait_until_empty() {
    std::unique_lock lock(mutex_);
    empty_.wait(lock, [&] { return open_ == 0; });
  }

 private:
  const int64_t limit_;
  std::mutex mutex_;
  std::condition_variable empty_;
  int64_t open_ = 0;
  bool closed_ = false;
};

}  // namespace quire
