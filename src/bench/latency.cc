#include "bench/latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <utility>

#include "base/error.h"
#include "bench/breakdown.h"
#include "bench/console.h"
#include "bench/engine_limits.h"
#include "bench/python_format.h"
#include "bench/requests.h"
#include "bench/result_file.h"
#include "bench/timed_device.h"
#include "engine/device.h"
#include "engine/engine.h"
#include "engine/parts.h"

namespace quire {
namespace {

void check_lengths(const LatencyOptions& options, int64_t max_model_len) {
  const int64_t total = int64_t{options.input_len} + options.output_len;
  if (total > max_model_len) {
    throw invalid_argument(
        fmt::format("--input-len {} + --output-len {} = {} tokens: the model's limit (--max-model-len) is {}",
                    options.input_len, options.output_len, total, max_model_len),
        "input-len");
  }
}

std::vector<BenchRequest> make_requests(const LatencyOptions& options, int64_t vocab_size, uint64_t seed) {
  constexpr int64_t kLargestId = 10000;  // exclusive
  std::mt19937_64 random(seed);
  std::vector<BenchRequest> requests(static_cast<size_t>(options.batch_size));
  for (BenchRequest& request : requests)
    request = {random_prompt(options.input_len, std::min(kLargestId, vocab_size), random), options.output_len};
  return requests;
}

// One more member at the end of a JSON object of four spaces of indent.
std::string with_member(std::string object, const char* name, const std::string& value) {
  std::string member = fmt::format(",\n    \"{}\": ", name);
  for (const char c : value) {
    member += c;
    if (c == '\n') member += "    ";
  }
  constexpr size_t kEnd = 2;  // "\n}"
  return object.insert(object.size() - kEnd, member);
}

// times: of the engine's ops; null = the engine as it is.
std::unique_ptr<Engine> make_engine(EngineConfig config, OpTimes* times) {
  if (times == nullptr) return std::make_unique<Engine>(std::move(config));
  const int64_t max_model_len = config.max_model_len;  // filled in below, but it matters who chose it
  EngineParts parts =
      load_engine_parts(config, [times](EngineConfig& c) { return make_timed_device(make_engine_device(c), *times); });
  config.max_model_len = max_model_len;
  return std::make_unique<Engine>(std::move(config), std::move(parts));
}

}  // namespace

void add_latency_options(OptionTable& table, LatencyOptions& options) {
  constexpr double kMany = 1 << 24;
  table.group("Latency benchmark");
  table.add("input-len", options.input_len, "tokens in each prompt").range(1, kMany);
  table.add("output-len", options.output_len, "tokens to generate for each prompt").range(1, kMany);
  table.add("batch-size", options.batch_size, "prompts in the batch").range(1, 65536);
  table.add("n", options.n, "sequences generated for each prompt").range(1, 1024);
  table.add("num-iters-warmup", options.num_iters_warmup, "batches before the measurement").range(0, kMany);
  table.add("num-iters", options.num_iters, "measured batches").range(1, kMany);
  table.add("output-json", options.output_json, "file for the results").value_name("FILE");
  table.add("breakdown", options.breakdown, "time of each op, beside what the machine can do (on the CPU)");
  table.add("disable-detokenize", options.disable_detokenize, "leave the text of the tokens out of the measured time");
  table.refused("use-beam-search", "beam search is not supported");
  table.refused("profile", "there is no built-in profiler; run the command under perf");
}

LatencyReport make_latency_report(std::string model_id, std::vector<double> latencies) {
  LatencyReport report;
  report.model_id = std::move(model_id);
  report.average = std::accumulate(latencies.begin(), latencies.end(), 0.0) / static_cast<double>(latencies.size());
  std::vector<double> sorted = latencies;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < kLatencyPercentages.size(); ++i)
    report.percentiles[i] = percentile(sorted, kLatencyPercentages[i]);
  report.latencies = std::move(latencies);
  return report;
}

std::string latency_text(const LatencyReport& report) {
  std::string out = fmt::format("Avg latency: {} seconds\n", python_repr(report.average));
  for (size_t i = 0; i < kLatencyPercentages.size(); ++i) {
    out +=
        fmt::format("{}% percentile latency: {} seconds\n", kLatencyPercentages[i], python_repr(report.percentiles[i]));
  }
  return out;
}

std::string latency_json(const LatencyReport& report) {
  std::string latencies, percentiles;
  for (const double latency : report.latencies) {
    latencies += fmt::format("{}\n        {}", latencies.empty() ? "" : ",", python_repr(latency));
  }
  for (size_t i = 0; i < kLatencyPercentages.size(); ++i) {
    percentiles += fmt::format("{}\n        \"{}\": {}", i == 0 ? "" : ",", kLatencyPercentages[i],
                               python_repr(report.percentiles[i]));
  }
  const std::string model =
      nlohmann::json(report.model_id).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return fmt::format(
      "{{\n    \"model_id\": {},\n    \"avg_latency\": {},\n    \"latencies\": [{}\n    ],\n    \"percentiles\": "
      "{{{}\n    }}\n}}",
      model, python_repr(report.average), latencies, percentiles);
}

void run_latency_benchmark(EngineConfig config, const LatencyOptions& options) {
  if (config.max_model_len > 0) check_lengths(options, config.max_model_len);
  ResultFile file(options.output_json);
  config.max_num_queued_reqs =
      std::max<int64_t>({config.max_num_queued_reqs, 1024, options.batch_size});  // the batch comes at once
  config.log_stats = false;
  OpTimes times;  // outlives the engine
  const std::unique_ptr<Engine> owned = make_engine(std::move(config), options.breakdown ? &times : nullptr);
  Engine& engine = *owned;
  check_lengths(options, engine.max_model_len());

  const std::vector<BenchRequest> requests =
      make_requests(options, engine.model_config().vocab_size, engine.config().seed);
  const bool detokenize = !options.disable_detokenize && has_tokenizer(engine);
  say("Warming up...\n");
  for (int i = 0; i < options.num_iters_warmup; ++i) run_requests(engine, requests, options.n, detokenize);
  times.clear();
  std::vector<double> latencies;
  latencies.reserve(static_cast<size_t>(options.num_iters));
  for (int i = 0; i < options.num_iters; ++i) {
    times.pause();
    latencies.push_back(run_requests(engine, requests, options.n, detokenize));
  }
  const LatencyReport report = make_latency_report(engine.config().model, std::move(latencies));
  say(latency_text(report));
  std::string json = latency_json(report);
  if (options.breakdown) {
    ThreadPool pool(engine.config().threads);
    const Breakdown breakdown =
        make_breakdown(times, measure_device_limits(pool), options.num_iters, report.average * options.num_iters);
    say(breakdown_text(breakdown));
    json = with_member(std::move(json), "breakdown", breakdown_json(breakdown));
  }
  file.write(json);
  if (engine.device().name() == "GPU") say(limits_text(engine, requests, options.n, report.average));
}

}  // namespace quire
