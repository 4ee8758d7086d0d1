#pragma once
// The engine's end of a Generation: the engine thread pushes events and never waits; the client takes them.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_queue.h"
#include "engine/generation.h"

namespace quire {

class GenerationState final : public Generation {
 public:
  GenerationState(std::string id, uint64_t number, int32_t choices, std::shared_ptr<EngineQueue> engine);

  const std::string& id() const override { return id_; }
  bool poll(std::vector<GenerationEvent>& events) override;
  bool wait(std::vector<GenerationEvent>& events, std::chrono::milliseconds timeout) override;
  void set_listener(std::function<void()> listener) override;
  void stop_choice(int32_t choice) override;
  void cancel() override;
  int64_t cached_tokens() const override;
  const std::vector<std::optional<TokenLogprobs>>& prompt_logprobs() const override { return prompt_logprobs_; }
  std::span<const float> embedding() const override { return embedding_; }

  bool ended() const;  // every choice has

  // Engine thread.
  void set_cached_tokens(int64_t tokens);
  std::vector<std::optional<TokenLogprobs>>& prompt_logprobs_to_fill() { return prompt_logprobs_; }
  std::vector<float>& embedding_to_fill() { return embedding_; }
  void push(GenerationEvent event);  // queued; the listener is not called yet. A choice's last event never allocates.
  void end_choice_silently(int32_t choice);
  void notify();

 private:
  bool take_locked(std::vector<GenerationEvent>& events);

  const std::string id_;
  const uint64_t number_;
  const std::shared_ptr<EngineQueue> engine_;
  std::vector<std::optional<TokenLogprobs>> prompt_logprobs_;  // complete before the first event of choice 0
  std::vector<float> embedding_;                               // complete before the last event

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<GenerationEvent> events_;  // has room for one more event of every open choice
  std::vector<bool> ended_;
  int32_t open_choices_;
  int64_t cached_tokens_ = 0;
  std::shared_ptr<const std::function<void()>> listener_;  // shared: calling it outside the lock copies a pointer only
};

// The client's end: when its last copy goes, what still runs of the request is cancelled.
std::shared_ptr<Generation> hand_out(std::shared_ptr<GenerationState> state);

}  // namespace quire
