// quire bench: measurements.
#include "base/error.h"
#include "bench/attention.h"
#include "bench/device.h"
#include "bench/latency.h"
#include "bench/serve.h"
#include "bench/throughput.h"
#include "cli/command.h"
#include "engine/options.h"

namespace quire {
namespace {

int bench_latency(Arguments args) {
  EngineConfig config;
  config.enable_prefix_caching = false;  // every batch has the same prompts
  LatencyOptions options;
  OptionTable table("quire bench latency", "Measure the time of one batch of requests.");
  add_latency_options(table, options);
  add_engine_options(table, config);
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kInfo, parsed)) return 0;
  finish_engine_options(config);
  run_latency_benchmark(std::move(config), options);
  return 0;
}

int bench_throughput(Arguments args) {
  EngineConfig config;
  ThroughputOptions options;
  OptionTable table("quire bench throughput", "Measure the rate at which many requests are done.");
  add_throughput_options(table, options);
  add_engine_options(table, config);
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kInfo, parsed)) return 0;
  finish_engine_options(config);
  run_throughput_benchmark(std::move(config), options);
  return 0;
}

int bench_serve(Arguments args) {
  ServeOptions options;
  OptionTable table("quire bench serve", "Send requests to a server and measure its answers.");
  add_serve_benchmark_options(table, options);
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kInfo, parsed)) return 0;
  run_serve_benchmark(std::move(options));
  return 0;
}

int bench_attention(Arguments args) {
  constexpr int kCheckFailed = 1;
  AttentionBenchmarkOptions options;
  OptionTable table("quire bench attention", "Measure attention over a step, layer by layer, without a model.");
  add_attention_benchmark_options(table, options);
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kInfo, parsed)) return 0;
  return run_attention_benchmark(options) ? 0 : kCheckFailed;
}

int bench_device(Arguments args) {
  DeviceBenchmarkOptions options;
  OptionTable table("quire bench device", "Measure what this machine or its GPU can do: memory, multiply-adds.");
  add_device_benchmark_options(table, options);
  ParsedOptions parsed;
  if (!parse_options(table, args, LogLevel::kInfo, parsed)) return 0;
  run_device_benchmark(options);
  return 0;
}

}  // namespace

int bench_command(Arguments args) {
  const std::string what = args.empty() ? "--help" : args.front();
  if (what == "latency") return bench_latency(args.subspan(1));
  if (what == "throughput") return bench_throughput(args.subspan(1));
  if (what == "serve") return bench_serve(args.subspan(1));
  if (what == "attention") return bench_attention(args.subspan(1));
  if (what == "device") return bench_device(args.subspan(1));
  if (what == "-h" || what == "--help") {
    print(
        "usage: quire bench <what> [options]\n"
        "\n"
        "  latency     time of one batch of requests\n"
        "  throughput  rate at which many requests are done\n"
        "  serve       what a server's clients see: throughput, times to the first and between tokens\n"
        "  attention   time of one layer's attention, beside what the machine can do\n"
        "  device      what the machine or its GPU can do: memory, multiply-adds\n"
        "\n"
        "`quire bench <what> --help` lists the options.\n");
    return 0;
  }
  throw invalid_argument("unknown benchmark '" + what +
                         "'; there are latency, throughput, serve, attention and device");
}

}  // namespace quire
