#include "bench/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "attention/registry.h"
#include "bench/attention_step.h"
#include "bench/result_file.h"
#include "bench/timing.h"

namespace quire {
namespace {

constexpr double kGiga = 1e9;

std::string bound_name(LimitShare::Bound bound, const DeviceLimits& limits) {
  switch (bound) {
    case LimitShare::Bound::kReadMemory:
      return "read";
    case LimitShare::Bound::kReadCache:
      return fmt::format("read inside {}", limits.last_cache());
    case LimitShare::Bound::kProduct:
      return "product";
    case LimitShare::Bound::kFma:
      break;
  }
  return "FMA";
}

double working_set_bytes(const AttentionResult& result) { return result.layers * result.work.kv_bytes; }

nlohmann::ordered_json check_json(const std::optional<AttentionCheck>& check) {
  if (!check.has_value()) return nullptr;
  return {{"tokens", check->tokens},
          {"largest_error", check->largest_error},
          {"bound", check->bound},
          {"passed", check->passed()}};
}

nlohmann::ordered_json row_json(const AttentionResult& result, const DeviceLimits& limits) {
  const AttentionGroup& group = result.row.group;
  const LimitShare limit = limit_share(result, limits);
  const double seconds = median(result.seconds);
  return {{"name", result.row.name},
          {"heads", group.heads},
          {"kv_heads", group.kv_heads},
          {"head_dim", group.head_dim},
          {"window", group.window},
          {"soft_cap", group.soft_cap},
          {"block_size", group.block_size},
          {"kv_cache_dtype", result.row.kv_cache_dtype},
          {"kv_cache_layout", layout_name(group.layout)},
          {"attention_backend", result.backend},
          {"extend_strategy", strategy_name(result.row.strategy)},
          {"requests", result.work.requests},
          {"tokens", result.work.tokens},
          {"kv_tokens", result.work.kv_tokens},
          {"layers", result.layers},
          {"kv_bytes", result.work.kv_bytes},
          {"flop", result.work.flop},
          {"iters", result.seconds.size()},
          {"median_seconds", seconds},
          {"least_seconds", *std::min_element(result.seconds.begin(), result.seconds.end())},
          {"plan_seconds", result.plan_seconds},
          {"kv_gb_s", result.work.kv_bytes / seconds / kGiga},
          {"gflop_s", result.work.flop / seconds / kGiga},
          {"bound", bound_name(limit.bound, limits)},
          {"share", limit.share},
          {"check", check_json(result.check)}};
}

void say(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

LimitShare limit_share(const AttentionResult& result, const DeviceLimits& limits) {
  const bool from_cache =
      limits.cache_bytes > 0 && working_set_bytes(result) < static_cast<double>(limits.last_cache_bytes);
  const double read_rate = (from_cache ? limits.read_cache : limits.read_memory).best * kGiga;
  const double read_seconds = result.work.kv_bytes / read_rate;
  const bool products = limits.best_product() > 0 && result.row.group.kv_dtype != DType::kF32;
  const double flop_rate = (products ? limits.best_product() : limits.fma_f32.best) * kGiga;
  const double flop_seconds = result.work.flop / flop_rate;
  LimitShare limit;
  limit.bound = flop_seconds > read_seconds ? (products ? LimitShare::Bound::kProduct : LimitShare::Bound::kFma)
                : from_cache                ? LimitShare::Bound::kReadCache
                                            : LimitShare::Bound::kReadMemory;
  limit.share = std::max(read_seconds, flop_seconds) / median(result.seconds);
  return limit;
}

AttentionResult measure_attention(const AttentionRow& row, const AttentionBackend& backend,
                                  const AttentionBenchmarkOptions& options, int64_t last_cache_bytes,
                                  ThreadPool& pool) {
  constexpr size_t kPlans = 9, kLeastIters = 5, kMostIters = 1000;
  constexpr double kLongEnough = 0.5;  // seconds
  AttentionStep step(row, options.layers, last_cache_bytes, pool);
  AttentionResult result;
  result.row = row;
  result.backend = backend.name();
  result.work = attention_work(row);
  result.layers = step.layers();

  const auto requests = static_cast<int32_t>(result.work.requests), tokens = static_cast<int32_t>(result.work.tokens);
  const auto plan = backend.make_plan(row.group, requests, tokens);
  Workspace workspace(backend.workspace_bytes(row.group, requests, tokens));
  std::vector<double> plan_seconds;
  for (size_t i = 0; i < kPlans; ++i) plan_seconds.push_back(seconds_of([&] { backend.plan(step.batch(), *plan); }));
  result.plan_seconds = median(plan_seconds);

  const auto run = [&](int32_t layer) {
    return seconds_of([&] { backend.run(*plan, step.q(), step.layer(layer), step.out(), workspace, pool); });
  };
  run(0);  // touches the scratch memory
  if (options.check) result.check = step.check();
  double total = 0;
  const auto enough = [&] {
    const size_t n = result.seconds.size();
    if (options.iters > 0) return n == static_cast<size_t>(options.iters);
    return n >= kMostIters || (n >= kLeastIters && total >= kLongEnough);
  };
  for (int32_t layer = 0; !enough(); layer = (layer + 1) % step.layers()) {
    result.seconds.push_back(run(layer));
    total += result.seconds.back();
  }
  return result;
}

namespace {

class CpuAttentionDevice final : public AttentionDevice {
 public:
  explicit CpuAttentionDevice(int32_t threads) : pool_(thread_count(threads)) {}
  const char* automatic_kv_dtype() const override { return "float16"; }
  std::unique_ptr<AttentionBackend> make_backend(const AttentionRow& row) override {
    return make_attention_backend(row.backend, row.group, row.strategy);
  }
  DeviceLimits measure_limits() override { return measure_device_limits(pool_, {.copy = false, .int8 = false}); }
  AttentionResult measure(const AttentionRow& row, const AttentionBackend& backend,
                          const AttentionBenchmarkOptions& options, int64_t last_cache_bytes) override {
    return measure_attention(row, backend, options, last_cache_bytes, pool_);
  }

 private:
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<AttentionDevice> make_cpu_attention_device(int32_t threads) {
  return std::make_unique<CpuAttentionDevice>(threads);
}

bool run_attention_benchmark(const AttentionBenchmarkOptions& options) {
  const std::unique_ptr<AttentionDevice> device =
      wants_gpu(options.device) ? make_gpu_attention_device() : make_cpu_attention_device(options.threads);
  const std::vector<AttentionRow> rows = attention_rows(options, device->automatic_kv_dtype());
  std::vector<std::unique_ptr<AttentionBackend>> backends;
  backends.reserve(rows.size());
  for (const AttentionRow& row : rows) backends.push_back(device->make_backend(row));
  ResultFile file(options.output_json);
  const DeviceLimits limits = device->measure_limits();
  say(device_text(limits) + attention_header(options));
  std::vector<AttentionResult> results;
  results.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    results.push_back(device->measure(rows[i], *backends[i], options, limits.last_cache_bytes));
    say(attention_text(results.back(), limits));
  }
  file.write(attention_json(results, limits));
  return checks_passed(results);
}

bool checks_passed(const std::vector<AttentionResult>& results) {
  return std::all_of(results.begin(), results.end(),
                     [](const AttentionResult& result) { return !result.check || result.check->passed(); });
}

std::string attention_header(const AttentionBenchmarkOptions& options) {
  return fmt::format("\n{:<58} {:<30} {:>11} {:>9} {:>9} {:>6}{}\n", "step, one layer", "KV cache, backend", "median",
                     "KV GB/s", "GFLOP/s", "share",
                     options.check ? "  of limit        largest error (bound)" : "  of limit");
}

std::string attention_text(const AttentionResult& result, const DeviceLimits& limits) {
  const LimitShare limit = limit_share(result, limits);
  const double seconds = median(result.seconds);
  std::string how =
      fmt::format("{} {} {}", result.row.kv_cache_dtype, layout_name(result.row.group.layout), result.backend);
  if (result.row.strategy == ExtendStrategy::kGather) how += " gather";
  const std::string time =
      limits.gpu() ? fmt::format("{:>8.1f} us", seconds * 1e6) : fmt::format("{:>8.3f} ms", seconds * 1e3);
  std::string line = fmt::format("{:<58} {:<30} {} {:>9.2f} {:>9.1f} {:>4.0f} %  {:<14}", result.row.name, how, time,
                                 result.work.kv_bytes / seconds / kGiga, result.work.flop / seconds / kGiga,
                                 limit.share * 100, bound_name(limit.bound, limits));
  if (result.check.has_value()) {
    line += fmt::format("  {:.2e} ({:.2e}){}", result.check->largest_error, result.check->bound,
                        result.check->passed() ? "" : " FAILED");
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string attention_json(const std::vector<AttentionResult>& results, const DeviceLimits& limits) {
  nlohmann::ordered_json json;
  json["limits"] = nlohmann::ordered_json::parse(device_json(limits));
  json["rows"] = nlohmann::ordered_json::array();
  for (const AttentionResult& result : results) json["rows"].push_back(row_json(result, limits));
  return json.dump(4);
}

}  // namespace quire
