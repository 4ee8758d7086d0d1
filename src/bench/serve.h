#pragma once
// `quire bench serve`: sends requests to an OpenAI-shaped server and measures its answers, with the flags, the table
// and the JSON of `vllm bench serve`.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/option_table.h"
#include "bench/arrivals.h"
#include "bench/datasets.h"
#include "client/url.h"

namespace quire {

struct ServeOptions {
  DatasetOptions dataset;
  std::string backend = "openai", base_url, host = "127.0.0.1", endpoint, api_key;
  uint16_t port = 8000;
  std::string model, served_model_name, tokenizer;
  bool skip_tokenizer_init = false;
  std::string request_rate = "inf", burstiness = "1.0";
  std::optional<int64_t> max_concurrency;
  std::string ramp_up_strategy = "none";
  std::optional<double> ramp_up_start_rps, ramp_up_end_rps;
  int32_t num_warmups = 0;
  double ready_check_timeout_sec = 0;
  bool disable_tqdm = false;
  std::string percentile_metrics, metric_percentiles = "99";
  std::vector<std::string> goodput;
  bool save_result = false, save_detailed = false, append_result = false;
  std::string result_dir, result_filename, label;
  std::vector<std::string> metadata;
  std::optional<double> temperature, top_p, min_p, frequency_penalty, presence_penalty, repetition_penalty;
  std::optional<int64_t> top_k, logprobs;
  bool ignore_eos = false, insecure = false;
  std::string extra_body, chat_template_kwargs, request_id_prefix;
  std::vector<std::string> header;
};

void add_serve_benchmark_options(OptionTable& table, ServeOptions& options);

// What options say once they have been read and checked.
struct ServePlan {
  HttpUrl url;           // of the server, without the endpoint
  std::string endpoint;  // "/v1/completions"
  Arrivals arrivals;
  std::vector<std::string> metrics;  // of kServeMetrics
  std::vector<double> percentiles;
  std::vector<std::pair<std::string, double>> goodput;  // metric, milliseconds
  std::vector<std::pair<std::string, std::string>> headers, metadata;
};
constexpr const char* kServeMetrics[] = {
    "ttft", "tpot", "itl", "e2el", "client_queue_time", "e2el_including_client_queue"};

// Copies what stands in for other flags, and throws Error(kInvalidArgument) naming the flag at fault.
ServePlan plan_serve_benchmark(ServeOptions& options);

// Measures, prints to stdout and writes the result file. Throws Error: kInvalidArgument before any request if a flag or
// a file is wrong, kUnavailable if the server can't be reached or no request succeeded.
void run_serve_benchmark(ServeOptions options);

}  // namespace quire
