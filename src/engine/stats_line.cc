#include "engine/stats_line.h"

#include <fmt/format.h>

namespace quire {
namespace {

constexpr std::chrono::seconds kPeriod{10};

double percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace

std::optional<EngineClock::time_point> StatsLine::due(const EngineMetrics::Snapshot& total) const {
  if (!news(total)) return std::nullopt;
  return since_ + kPeriod;
}

std::optional<std::string> StatsLine::take(const EngineMetrics::Snapshot& total, EngineClock::time_point now) {
  if (now < since_ + kPeriod) return std::nullopt;
  const double seconds = std::chrono::duration<double>(now - since_).count();
  const int64_t prompt = total.prompt_tokens - prompt_tokens_, generated = total.generation_tokens - generation_tokens_;
  const bool quiet = !news(total);
  since_ = now;
  if (quiet) return std::nullopt;
  prompt_tokens_ = total.prompt_tokens;
  generation_tokens_ = total.generation_tokens;
  return fmt::format(
      "Engine 000: Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} tokens/s, Running: {} "
      "reqs, "
      "Waiting: {} reqs, {} KV cache usage: {:.1f}%, Prefix cache hit rate: {:.1f}%",
      static_cast<double>(prompt) / seconds, static_cast<double>(generated) / seconds, total.running, total.waiting,
      device_, percent(total.total_blocks - total.free_blocks, total.total_blocks),
      percent(total.prefix_cache_hits, total.prefix_cache_queries));
}

}  // namespace quire
