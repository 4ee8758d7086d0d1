#include "engine/engine_queue.h"

#include <utility>

namespace quire {

EngineQueue::Entry EngineQueue::submit(std::unique_ptr<EngineRequest> request) {
  const auto sequences = static_cast<int64_t>(request->sequences.size());
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Entry::kClosed;
    if (open_ >= limit_) return Entry::kFull;
    commands_.push_back({EngineCommand::Kind::kSubmit, std::move(request)});
    open_ += sequences;
  }
  ready_.notify_one();
  return Entry::kAccepted;
}

void EngineQueue::push(EngineCommand command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  ready_.notify_one();
}

void EngineQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

void EngineQueue::take(std::vector<EngineCommand>& taken, EngineClock::time_point deadline) {
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

void EngineQueue::leave(int64_t sequences) {
  const std::lock_guard lock(mutex_);
  open_ -= sequences;
  if (open_ == 0) empty_.notify_all();
}

bool EngineQueue::wait_until_empty(EngineClock::time_point deadline) {
  std::unique_lock lock(mutex_);
  const auto empty = [&] { return open_ == 0; };
  if (deadline != kForever) return empty_.wait_until(lock, deadline, empty);
  empty_.wait(lock, empty);
  return true;
}

}  // namespace quire
