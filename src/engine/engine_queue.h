#pragma once
// What other threads ask of the engine thread: a queue on which it sleeps when it has nothing else to do.
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
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
  void push(EngineCommand command) {
    {
      const std::lock_guard lock(mutex_);
      commands_.push_back(std::move(command));
    }
    ready_.notify_one();
  }
  // Swaps all commands into `taken` (cleared first); waits for one if `block`.
  void take(std::vector<EngineCommand>& taken, bool block) {
    taken.clear();
    std::unique_lock lock(mutex_);
    if (block) ready_.wait(lock, [&] { return !commands_.empty(); });
    std::swap(taken, commands_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<EngineCommand> commands_;
};

}  // namespace quire
