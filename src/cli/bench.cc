// quire bench: measurements.
#include "base/error.h"
#include "bench/latency.h"
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

}  // namespace

int bench_command(Arguments args) {
  const std::string what = args.empty() ? "--help" : args.front();
  if (what == "latency") return bench_latency(args.subspan(1));
  if (what == "-h" || what == "--help") {
    print("usage: quire bench latency [options]\n\n`quire bench latency --help` lists the options.\n");
    return 0;
  }
  throw invalid_argument("unknown benchmark '" + what + "'; there is latency");
}

}  // namespace quire
