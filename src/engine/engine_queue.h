#pragma once
// What other threads ask of the engine thread: a queue on which it sleeps when it has nothing else to do. Requests
// enter it up to a limit, and are counted until they have ended; all else that is asked goes through.
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/sequence.h"

namespace quire {

struct EngineCommand {
  enum class Kind : uint8_t { kSubmit, kCancel, kStopChoice, kResetPrefixCache, kAbortAll, kExit };
  Kind kind;
  std::unique_ptr<EngineRequest> request = nullptr;  // kSubmit
  uint64_t number = 0;                               // kCancel, kStopChoice: the request's
  int32_t choice = 0;                                // kStopChoice
};

class EngineQueue {
 public:
  // limit: sequences that are open (waiting or running) before another request is turned away.
  explicit EngineQueue(int64_t limit) : limit_(limit) {}

  enum class Entry : uint8_t { kAccepted, kFull, kClosed };
  // Counts the request's sequences and queues it, in one: no burst passes the limit, and what was accepted is ahead of
  // any command that follows close(). The last to enter may overshoot the limit, so that none is too large to get in.
  Entry submit(std::unique_ptr<EngineRequest> request);
  void push(EngineCommand command);
  void close();  // no further request is accepted

  // The engine thread: all commands, oldest first, swapped into `taken` (cleared first). Waits for one until
  // `deadline`.
  static constexpr EngineClock::time_point kDoNotWait = EngineClock::time_point::min();
  static constexpr EngineClock::time_point kForever = EngineClock::time_point::max();
  void take(std::vector<EngineCommand>& taken, EngineClock::time_point deadline);
  void leave(int64_t sequences);  // of a request that has ended

  // False if something is still open at the deadline.
  bool wait_until_empty(EngineClock::time_point deadline);

 private:
  const int64_t limit_;
  std::mutex mutex_;
  std::condition_variable ready_, empty_;
  std::vector<EngineCommand> commands_;
  int64_t open_ = 0;
  bool closed_ = false;
};

}  // namespace quire
