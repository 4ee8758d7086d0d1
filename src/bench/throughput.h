#pragma once
// `quire bench throughput`: many requests at once, as `vllm bench throughput` measures and prints them.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/option_table.h"
#include "bench/datasets.h"
#include "bench/requests.h"
#include "engine/config.h"

namespace quire {

struct ThroughputOptions {
  ThroughputOptions() { dataset.name.clear(); }

  DatasetOptions dataset;  // an empty name: sharegpt if there is a path, else random
  std::optional<int64_t> prefix_len;
  int32_t n = 1, num_warmups = 0;
  bool disable_detokenize = false;
  std::string output_json;  // empty = none
};

struct ThroughputReport {
  std::string model_id;
  double seconds = 0;
  int64_t requests = 0, prompt_tokens = 0, output_tokens = 0;
};

void add_throughput_options(OptionTable& table, ThroughputOptions& options);

// Settles --dataset-name and what stands in for other flags. Throws Error(kInvalidArgument) naming the flag at fault.
void finish_throughput_options(ThroughputOptions& options);

// --dataset-name random: prompts of random tokens after a common prefix, with lengths of random_lengths().
std::vector<BenchRequest> make_throughput_requests(const ThroughputOptions& options, int64_t vocab_size, uint64_t seed);

// Loads the model, measures, prints to stdout and writes the JSON file. Throws Error: kInvalidArgument before any run
// if a request doesn't fit the model or the file can't be written; kInternal if a sequence does not get its tokens.
void run_throughput_benchmark(EngineConfig config, const ThroughputOptions& options);

ThroughputReport measure_throughput(Engine& engine, const std::vector<BenchRequest>& requests,
                                    const ThroughputOptions& options);
std::string throughput_text(const ThroughputReport& report);  // the lines on stdout
std::string throughput_json(const ThroughputReport& report);  // four spaces of indent

}  // namespace quire
