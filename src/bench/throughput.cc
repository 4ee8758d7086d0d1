#include "bench/throughput.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <utility>

#include "base/error.h"
#include "bench/console.h"
#include "bench/engine_limits.h"
#include "bench/python_format.h"
#include "bench/result_file.h"
#include "engine/device.h"

namespace quire {
namespace {

constexpr double kMany = 1 << 24;

LengthRange input_lengths(const DatasetOptions& options) {
  return random_lengths(options.random_input_len, random_ratio(options, "input"));
}
LengthRange output_lengths(const DatasetOptions& options) {
  return random_lengths(options.random_output_len, random_ratio(options, "output"));
}

void check_random_lengths(const DatasetOptions& options, int64_t max_model_len) {
  if (options.name != "random") return;
  const int64_t input = options.random_prefix_len + input_lengths(options).most, output = output_lengths(options).most;
  if (input + output > max_model_len) {
    throw invalid_argument(
        fmt::format("--random-input-len, --random-output-len, --random-range-ratio: up to {} + {} tokens; the model's "
                    "limit (--max-model-len) is {}",
                    input, output, max_model_len),
        "random-input-len");
  }
}

void check_lengths(const std::vector<BenchRequest>& requests, int64_t max_model_len) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t input = std::ssize(requests[i].prompt), output = requests[i].output_len;
    if (input + output <= max_model_len) continue;
    throw invalid_argument(
        fmt::format("prompt {} of the dataset: {} + {} tokens; the model's limit (--max-model-len) is "
                    "{}",
                    i + 1, input, output, max_model_len),
        "dataset-path");
  }
}

int32_t draw(const LengthRange& lengths, std::mt19937_64& random) {
  return static_cast<int32_t>(std::uniform_int_distribution<int64_t>(lengths.least, lengths.most)(random));
}

std::vector<BenchRequest> make_requests(const Engine& engine, const ThroughputOptions& options, uint64_t seed) {
  if (options.dataset.name == "random")
    return make_throughput_requests(options, engine.model_config().vocab_size, seed);
  DatasetOptions dataset = options.dataset;
  dataset.seed = seed;
  const std::unique_ptr<TextCoder> coder = local_coder(engine.tokenizer(), &engine.chat_format());
  std::vector<BenchRequest> requests;
  for (const DatasetRequest& request : load_dataset(dataset, coder.get()))
    requests.push_back({engine.tokenizer().encode(request.prompt, true), request.output_len});
  return requests;
}

}  // namespace

void add_throughput_options(OptionTable& table, ThroughputOptions& options) {
  table.group("Throughput benchmark");
  table.add_unbound("backend", "requests run in this process").choices({"vllm"});
  table.add("num-warmups", options.num_warmups, "requests before the measurement").range(0, kMany);
  table.add("n", options.n, "sequences generated for each prompt").range(1, 1024);
  table.add("prefix-len", options.prefix_len, "instead of --random-prefix-len").range(0, kMany);
  table.add("output-json", options.output_json, "file for the results").value_name("FILE");
  table.add("disable-detokenize", options.disable_detokenize, "leave the text of the tokens out of the measured time");
  table.ignored("async-engine", Values::kNone, "there is one engine; its requests are asynchronous");
  table.ignored("prequeue-requests", Values::kNone, "all requests are submitted at once");
  table.refused("lora-path", "LoRA is not supported");
  table.refused("profile", "there is no built-in profiler; run the command under perf");
  add_dataset_options(table, options.dataset);
}

void finish_throughput_options(ThroughputOptions& options) {
  if (options.dataset.name.empty()) options.dataset.name = options.dataset.path.empty() ? "random" : "sharegpt";
  if (options.prefix_len) options.dataset.random_prefix_len = static_cast<int32_t>(*options.prefix_len);
  finish_dataset_options(options.dataset);
}

std::vector<BenchRequest> make_throughput_requests(const ThroughputOptions& options, int64_t vocab_size,
                                                   uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<int32_t> prefix = random_prompt(options.dataset.random_prefix_len, vocab_size, random);
  const LengthRange inputs = input_lengths(options.dataset), outputs = output_lengths(options.dataset);
  std::vector<BenchRequest> requests(static_cast<size_t>(options.dataset.num_prompts));
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

void run_throughput_benchmark(EngineConfig config, const ThroughputOptions& given) {
  ThroughputOptions options = given;
  finish_throughput_options(options);
  if (config.max_model_len > 0) check_random_lengths(options.dataset, config.max_model_len);
  ResultFile file(options.output_json);
  const int64_t sequences = int64_t{std::max(options.dataset.num_prompts, options.num_warmups)} * options.n;
  config.max_num_queued_reqs = std::max<int64_t>({config.max_num_queued_reqs, 1024, sequences});  // all come at once
  config.log_stats = false;
  Engine engine(std::move(config));
  check_random_lengths(options.dataset, engine.max_model_len());

  const uint64_t seed = engine.config().seed;
  const std::vector<BenchRequest> requests = make_requests(engine, options, seed);
  check_lengths(requests, engine.max_model_len());
  if (options.num_warmups > 0) {
    ThroughputOptions warmup = options;
    warmup.dataset.num_prompts = options.num_warmups;
    warmup.dataset.num_prefixes = 1;
    // Other prompts where they are made up, so that none is in the prefix cache.
    const std::vector<BenchRequest> before = make_requests(engine, warmup, ~seed);
    check_lengths(before, engine.max_model_len());
    run_requests(engine, before, options.n, false);
  }
  const ThroughputReport report = measure_throughput(engine, requests, options);
  say(throughput_text(report));
  file.write(throughput_json(report));
  if (engine.device().name() == "GPU") say(limits_text(engine, requests, options.n, report.seconds));
}

}  // namespace quire
