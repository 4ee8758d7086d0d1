#pragma once
// What other threads ask of the engine thread: a queue on which it sleeps when it has nothing else to do.
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/sequence.h"

namespace quire {

struct EngineCommand {
  enum class Kind : uint8_t { kSubmit, kCancel, kStopChoice, kResetPrefixCache, kAbortAll, kExit };
  Kind kind;
  std::unique_ptr<EngineRequest> request;  // kSubmit
  uint64_t number = 0;                     // kCancel, kStopChoice: the request's
  int32_t choice = 0;                      // kStopChoice
};

class EngineQueue {
 public:
  // How long take() waits for a first command.
  static constexpr EngineClock::time_point kDoNotWait = EngineClock::time_point::min();
  static constexpr EngineClock::time_point kForever = EngineClock::time_point::max();

  void push(EngineCommand command) {
    {
      const std::lock_guard lock(mutex_);
      commands_.push_back(std::move(command));
    }
    ready_.notify_one();
  }
  // Swaps all commands into `taken` (cleared first).
  void take(std::vector<EngineCommand>& taken, EngineClock::time_point deadline) {
    taken.clear();
    std::unique_lock lock(mutex_);
    const auto any = [&] { return !commands_.empty(); };
    if (deadline == kForever) {
      ready_.wait(lock, any);
    } else if (deadline != kDoNotWait) {
      ready_.wait_until(lock, deadline, any);
    }
    std::swap(taken, commands_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<EngineCommand> commands_;
};

}  // namespace quire
