#include "bench/throughput.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <utility>

#include "base/error.h"
#include "bench/engine_limits.h"
#include "bench/python_format.h"
#include "bench/result_file.h"
#include "engine/device.h"

namespace quire {
namespace {

constexpr double kMany = 1 << 24;

struct Lengths {
  int64_t least, most;
};

Lengths lengths_of(double middle, double ratio) {
  const auto least = static_cast<int64_t>(std::floor(middle * (1 - ratio)));
  const auto most = static_cast<int64_t>(std::ceil(middle * (1 + ratio)));
  return {std::max<int64_t>(least, 1), std::max<int64_t>(most, 1)};
}
Lengths input_lengths(const ThroughputOptions& options) {
  return lengths_of(options.input_len > 0 ? options.input_len : options.random_input_len, options.random_range_ratio);
}
Lengths output_lengths(const ThroughputOptions& options) {
  return lengths_of(options.output_len > 0 ? options.output_len : options.random_output_len,
                    options.random_range_ratio);
}

void check_lengths(const ThroughputOptions& options, int64_t max_model_len) {
  const int64_t input = options.random_prefix_len + input_lengths(options).most, output = output_lengths(options).most;
  if (input + output > max_model_len) {
    throw invalid_argument(
        fmt::format("--random-input-len, --random-output-len, --random-range-ratio: up to {} + {} tokens; the model's "
                    "limit (--max-model-len) is {}",
                    input, output, max_model_len),
        "random-input-len");
  }
}

int32_t draw(const Lengths& lengths, std::mt19937_64& random) {
  return static_cast<int32_t>(std::uniform_int_distribution<int64_t>(lengths.least, lengths.most)(random));
}

void say(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

void add_throughput_options(OptionTable& table, ThroughputOptions& options) {
  table.group("Throughput benchmark");
  table.add_unbound("backend", "requests run in this process").choices({"vllm"});
  table.add_unbound("dataset-name", "prompts are random tokens").choices({"random"});
  table.add("num-prompts", options.num_prompts, "requests, all sent at once").range(1, kMany);
  table.add("num-warmups", options.num_warmups, "requests before the measurement").range(0, kMany);
  table.add("n", options.n, "sequences generated for each prompt").range(1, 1024);
  table.add("input-len", options.input_len, "instead of --random-input-len").word("auto", 0).range(1, kMany);
  table.add("output-len", options.output_len, "instead of --random-output-len").word("auto", 0).range(1, kMany);
  table.add("random-input-len", options.random_input_len, "tokens in a prompt").range(1, kMany);
  table.add("random-output-len", options.random_output_len, "tokens to generate for a prompt").range(1, kMany);
  table
      .add("random-range-ratio", options.random_range_ratio,
           "lengths are uniform from 1 - this to 1 + this times what is given")
      .range(0, 0.999999);
  table.add("random-prefix-len", options.random_prefix_len, "tokens that all prompts have in common before their own")
      .range(0, kMany);
  table.add("output-json", options.output_json, "file for the results").value_name("FILE");
  table.add("disable-detokenize", options.disable_detokenize, "leave the text of the tokens out of the measured time");
  table.refused("dataset-path", "prompts are random tokens");
  table.refused("async-engine", "there is one engine; its requests are asynchronous");
  table.refused("lora-path", "LoRA is not supported");
  table.refused("profile", "there is no built-in profiler; run the command under perf");
}

std::vector<BenchRequest> make_throughput_requests(const ThroughputOptions& options, int64_t vocab_size,
                                                   uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<int32_t> prefix = random_prompt(options.random_prefix_len, vocab_size, random);
  const Lengths inputs = input_lengths(options), outputs = output_lengths(options);
  std::vector<BenchRequest> requests(static_cast<size_t>(options.num_prompts));
  for (BenchRequest& request : requests) {
    request.prompt = prefix;
    const std::vector<int32_t> own = random_prompt(draw(inputs, random), vocab_size, random);
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.output_len = draw(outputs, random);
  }
  return requests;
}

ThroughputReport measure_throughput(Engine& engine, const std::vector<BenchRequest>& requests,
                                    const ThroughputOptions& options) {
  const bool detokenize = !options.disable_detokenize && has_tokenizer(engine);
  ThroughputReport report;
  report.model_id = engine.config().model;
  report.requests = std::ssize(requests);
  for (const BenchRequest& request : requests) {
    report.prompt_tokens += std::ssize(request.prompt);
    report.output_tokens += int64_t{request.output_len} * options.n;
  }
  report.seconds = run_requests(engine, requests, options.n, detokenize);
  return report;
}

std::string throughput_text(const ThroughputReport& report) {
  const auto rate = [&](int64_t count) { return static_cast<double>(count) / report.seconds; };
  return fmt::format(
      "Throughput: {:.2f} requests/s, {:.2f} total tokens/s, {:.2f} output tokens/s\n"
      "Total num prompt tokens:  {}\n"
      "Total num output tokens:  {}\n",
      rate(report.requests), rate(report.prompt_tokens + report.output_tokens), rate(report.output_tokens),
      report.prompt_tokens, report.output_tokens);
}

std::string throughput_json(const ThroughputReport& report) {
  const int64_t tokens = report.prompt_tokens + report.output_tokens;
  const std::string model =
      nlohmann::json(report.model_id).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return fmt::format(
      "{{\n    \"model_id\": {},\n    \"elapsed_time\": {},\n    \"num_requests\": {},\n    \"total_num_tokens\": {},\n"
      "    \"requests_per_second\": {},\n    \"tokens_per_second\": {}\n}}",
      model, python_repr(report.seconds), report.requests, tokens,
      python_repr(static_cast<double>(report.requests) / report.seconds),
      python_repr(static_cast<double>(tokens) / report.seconds));
}

void run_throughput_benchmark(EngineConfig config, const ThroughputOptions& options) {
  if (config.max_model_len > 0) check_lengths(options, config.max_model_len);
  ResultFile file(options.output_json);
  const int64_t sequences = int64_t{std::max(options.num_prompts, options.num_warmups)} * options.n;
  config.max_num_queued_reqs = std::max<int64_t>({config.max_num_queued_reqs, 1024, sequences});  // all come at once
  config.log_stats = false;
  Engine engine(std::move(config));
  check_lengths(options, engine.max_model_len());

  const int64_t vocab_size = engine.model_config().vocab_size;
  const uint64_t seed = engine.config().seed;
  const std::vector<BenchRequest> requests = make_throughput_requests(options, vocab_size, seed);
  if (options.num_warmups > 0) {
    ThroughputOptions warmup = options;
    warmup.num_prompts = options.num_warmups;
    // Other prompts, so that none is in the prefix cache.
    run_requests(engine, make_throughput_requests(warmup, vocab_size, ~seed), options.n, false);
  }
  const ThroughputReport report = measure_throughput(engine, requests, options);
  say(throughput_text(report));
  file.write(throughput_json(report));
  if (engine.device().name() == "GPU") say(limits_text(engine, requests, options.n, report.seconds));
}

}  // namespace quire
