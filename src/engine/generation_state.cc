#include "engine/generation_state.h"

#include <iterator>
#include <new>
#include <utility>

namespace quire {

GenerationState::GenerationState(std::string id, uint64_t number, int32_t choices, std::shared_ptr<EngineQueue> engine)
    : id_(std::move(id)),
      number_(number),
      engine_(std::move(engine)),
      ended_(static_cast<size_t>(choices)),
      open_choices_(choices) {
  events_.reserve(static_cast<size_t>(choices));
}

bool GenerationState::take_locked(std::vector<GenerationEvent>& events) {
  const bool more = open_choices_ > 0 || !events_.empty();
  events.insert(events.end(), std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
  events_.clear();
  return more;
}

bool GenerationState::poll(std::vector<GenerationEvent>& events) {
  const std::lock_guard lock(mutex_);
  return take_locked(events);
}

bool GenerationState::wait(std::vector<GenerationEvent>& events, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, timeout, [&] { return !events_.empty() || open_choices_ == 0; });
  return take_locked(events);
}

void GenerationState::set_listener(std::function<void()> listener) {
  bool call;
  {
    const std::lock_guard lock(mutex_);
    listener_ = listener ? std::make_shared<const std::function<void()>>(listener) : nullptr;
    call = !events_.empty() || open_choices_ == 0;
  }
  if (call && listener) listener();
}

void GenerationState::stop_choice(int32_t choice) {
  EngineCommand command{EngineCommand::Kind::kStopChoice, nullptr, number_, choice};
  engine_->push(std::move(command));
  end_choice_silently(choice);
}

void GenerationState::cancel() { engine_->push({EngineCommand::Kind::kCancel, nullptr, number_}); }

int64_t GenerationState::cached_tokens() const {
  const std::lock_guard lock(mutex_);
  return cached_tokens_;
}

void GenerationState::set_cached_tokens(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  cached_tokens_ = tokens;
}

void GenerationState::push(GenerationEvent event) {
  const std::lock_guard lock(mutex_);
  const auto choice = static_cast<size_t>(event.choice);
  if (ended_[choice]) return;  // stopped by the text layer meanwhile
  if (event.finish != FinishReason::kNone) {
    ended_[choice] = true;
    --open_choices_;
  } else if (events_.capacity() - events_.size() <= static_cast<size_t>(open_choices_)) {
    events_.reserve(2 * (events_.size() + static_cast<size_t>(open_choices_) + 1));
  }
  events_.push_back(std::move(event));
}

void GenerationState::end_choice_silently(int32_t choice) {
  const std::lock_guard lock(mutex_);
  if (ended_[static_cast<size_t>(choice)]) return;
  ended_[static_cast<size_t>(choice)] = true;
  --open_choices_;
  std::erase_if(events_, [&](const GenerationEvent& event) { return event.choice == choice; });
  arrived_.notify_all();
}

void GenerationState::notify() {
  std::shared_ptr<const std::function<void()>> listener;
  {
    const std::lock_guard lock(mutex_);
    listener = listener_;
  }
  arrived_.notify_all();
  if (listener) (*listener)();
}

bool GenerationState::ended() const {
  const std::lock_guard lock(mutex_);
  return open_choices_ == 0;
}

std::shared_ptr<Generation> hand_out(std::shared_ptr<GenerationState> state) {
  Generation* const client = state.get();
  return {client, [state = std::move(state)](Generation*) {
            try {
              if (!state->ended()) state->cancel();
            } catch (const std::bad_alloc&) {  // then it runs to its end, and nobody listens
            }
          }};
}

}  // namespace quire
