#pragma once
// A submitted request as its client sees it: token events handed over by the engine thread, taken by the client's
// thread. The engine never blocks on it; what is queued is bounded by the request's own max_tokens x n.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "sample/sampling_params.h"

namespace quire {

// What a request wants instead of tokens: the state after the last norm of its last token, or the mean of all tokens'.
enum class Pooling : uint8_t { kNone, kLast, kMean };

struct GenerateRequest {
  std::string id;  // empty = made by the engine
  std::vector<int32_t> prompt_ids;
  SamplingParams params;             // not read with pooling
  Pooling pooling = Pooling::kNone;  // else one event comes, the last one, and embedding() is the answer
  int64_t priority = 0;              // lower first, with the priority policy
  std::string cache_salt;
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kAbort, kError };

struct GenerationEvent {
  int32_t choice = 0;
  int32_t token = -1;  // -1: no token (an error or abort)
  std::optional<TokenLogprobs> logprobs;
  FinishReason finish = FinishReason::kNone;
  std::optional<int32_t> stop_token_id;  // kStop by one of stop_token_ids; null for EOS. The token itself is `token`.
  std::string error;                     // kError: what went wrong
  ErrorKind error_kind = ErrorKind::kInternal;
};

class Generation {
 public:
  virtual ~Generation() = default;
  virtual const std::string& id() const = 0;

  // Moves what has arrived to the end of `events`; false once every choice has finished and all was taken.
  virtual bool poll(std::vector<GenerationEvent>& events) = 0;
  // As poll, but waits until there is something (or the time is over).
  virtual bool wait(std::vector<GenerationEvent>& events, std::chrono::milliseconds timeout) = 0;
  // Called on the engine thread after events were queued (once for each step); must not block or throw. Called at once
  // if some are there.
  virtual void set_listener(std::function<void()> listener) = 0;

  // The text layer found a stop string: the choice ends without a further event.
  virtual void stop_choice(int32_t choice) = 0;
  // The client is gone: all choices end; events with kAbort follow. Blocks are free within two steps.
  virtual void cancel() = 0;

  // Valid after the first event of choice 0.
  virtual int64_t cached_tokens() const = 0;
  // One for each prompt token (null for the first); empty unless asked for. Valid after the first event of choice 0.
  virtual const std::vector<std::optional<TokenLogprobs>>& prompt_logprobs() const = 0;
  // [hidden_size], as the model has it (no length is normalized); empty unless asked for. Valid after the last event.
  virtual std::span<const float> embedding() const { return {}; }
};

}  // namespace quire
