#pragma once
// The line that says every 10 s what the engine did, in vLLM's words. Nothing is said of a time without tokens.
#include <optional>
#include <string>
#include <string_view>

#include "engine/sequence.h"
#include "engine/stats.h"

namespace quire {

class StatsLine {
 public:
  // device: whose cache it is, "CPU" or "GPU"; of static storage.
  StatsLine(std::string_view device, EngineClock::time_point now) : device_(device), since_(now) {}

  // The line, if it is due: 10 s after the last one, and something was computed since.
  std::optional<std::string> take(const EngineMetrics::Snapshot& total, EngineClock::time_point now);
  // The engine slept: what it does from now on is no part of that time.
  void restart(EngineClock::time_point now) { since_ = now; }
  // When it will be due if nothing more happens; nullopt: never.
  std::optional<EngineClock::time_point> due(const EngineMetrics::Snapshot& total) const;

 private:
  bool news(const EngineMetrics::Snapshot& total) const {
    return total.prompt_tokens != prompt_tokens_ || total.generation_tokens != generation_tokens_;
  }
  std::string_view device_;
  EngineClock::time_point since_;
  int64_t prompt_tokens_ = 0, generation_tokens_ = 0;
};

}  // namespace quire
