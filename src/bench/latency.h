#pragma once
// `quire bench latency`: wall time of one batch of requests, as `vllm bench latency` measures and prints it.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/option_table.h"
#include "engine/config.h"

namespace quire {

struct LatencyOptions {
  int32_t input_len = 32, output_len = 128, batch_size = 8, n = 1;
  int32_t num_iters_warmup = 10, num_iters = 30;
  bool disable_detokenize = false;
  bool breakdown = false;   // time of each op; the CPU only
  std::string output_json;  // empty = none
};

inline constexpr std::array<int, 6> kLatencyPercentages = {10, 25, 50, 75, 90, 99};

struct LatencyReport {
  std::string model_id;
  std::vector<double> latencies;  // seconds, in order of the runs; at least one
  double average = 0;
  std::array<double, kLatencyPercentages.size()> percentiles{};
};

void add_latency_options(OptionTable& table, LatencyOptions& options);

// Loads the model, warms up, measures, prints to stdout and writes the JSON file. Throws Error: kInvalidArgument before
// any run if the lengths don't fit the model or the file can't be written; kInternal if a sequence does not get
// output_len tokens.
void run_latency_benchmark(EngineConfig config, const LatencyOptions& options);

LatencyReport make_latency_report(std::string model_id, std::vector<double> latencies);
std::string latency_text(const LatencyReport& report);  // the lines on stdout
std::string latency_json(const LatencyReport& report);  // four spaces of indent

}  // namespace quire
