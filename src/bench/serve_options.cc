// The rows of `quire bench serve` and what they must be.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/quote.h"
#include "bench/serve.h"

namespace quire {
namespace {

constexpr double kMany = 1 << 24;

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> out;
  for (;;) {
    const size_t end = text.find(at);
    if (end != 0 && !text.empty()) out.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || std::isnan(value)) return std::nullopt;
  return value;
}

double positive_or_infinite(const std::string& text, const char* flag) {
  const std::optional<double> value = parse_number(text);
  if (!value || !(*value > 0))
    throw invalid_argument(fmt::format("--{} {}: must be a number above 0, or inf", flag, quote(text)), flag);
  return *value;
}

std::vector<std::pair<std::string, std::string>> key_values(const std::vector<std::string>& words, const char* flag) {
  const auto trimmed = [](std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    return std::string(text);
  };
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0)
      throw invalid_argument(fmt::format("--{} {}: must be KEY=VALUE", flag, quote(word)), flag);
    out.emplace_back(trimmed(word.substr(0, equals)), trimmed(word.substr(equals + 1)));
  }
  return out;
}

Arrivals read_arrivals(const ServeOptions& options) {
  Arrivals arrivals;
  arrivals.request_rate = positive_or_infinite(options.request_rate, "request-rate");
  arrivals.burstiness = positive_or_infinite(options.burstiness, "burstiness");
  if (options.ramp_up_strategy == "none") {
    if (options.ramp_up_start_rps || options.ramp_up_end_rps)
      throw invalid_argument("--ramp-up-start-rps, --ramp-up-end-rps: need --ramp-up-strategy", "ramp-up-strategy");
    return arrivals;
  }
  if (!std::isinf(arrivals.request_rate))
    throw invalid_argument("--request-rate: the rate is that of the ramp (--ramp-up-strategy)", "request-rate");
  if (!options.ramp_up_start_rps || !options.ramp_up_end_rps)
    throw invalid_argument("--ramp-up-strategy: needs --ramp-up-start-rps and --ramp-up-end-rps", "ramp-up-strategy");
  if (*options.ramp_up_start_rps > *options.ramp_up_end_rps) {
    throw invalid_argument(fmt::format("--ramp-up-start-rps {}: must not be above --ramp-up-end-rps, {}",
                                       *options.ramp_up_start_rps, *options.ramp_up_end_rps),
                           "ramp-up-start-rps");
  }
  arrivals.ramp_up = options.ramp_up_strategy;
  arrivals.ramp_up_start = *options.ramp_up_start_rps;
  arrivals.ramp_up_end = *options.ramp_up_end_rps;
  return arrivals;
}

std::vector<std::string> read_metrics(const ServeOptions& options) {
  const bool embeddings = options.backend == "openai-embeddings";
  std::vector<std::string> metrics = split(
      options.percentile_metrics.empty() ? (embeddings ? "e2el" : "ttft,tpot,itl") : options.percentile_metrics, ',');
  for (const std::string& metric : metrics) {
    if (std::find(std::begin(kServeMetrics), std::end(kServeMetrics), metric) == std::end(kServeMetrics)) {
      throw invalid_argument(
          fmt::format("--percentile-metrics {}: must be some of {}", quote(metric), fmt::join(kServeMetrics, ", ")),
          "percentile-metrics");
    }
  }
  if (embeddings) std::erase_if(metrics, [](const std::string& m) { return m == "ttft" || m == "tpot" || m == "itl"; });
  return metrics;
}

std::vector<double> read_percentiles(const std::string& text) {
  std::vector<double> out;
  for (const std::string& word : split(text, ',')) {
    const std::optional<double> value = parse_number(word);
    if (!value || *value < 0 || *value > 100) {
      throw invalid_argument(fmt::format("--metric-percentiles {}: must be numbers from 0 to 100", quote(word)),
                             "metric-percentiles");
    }
    out.push_back(*value);
  }
  return out;
}

std::vector<std::pair<std::string, double>> read_goodput(const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, double>> out;
  for (const std::string& word : words) {
    const size_t colon = word.find(':');
    const std::string metric = word.substr(0, colon);
    const auto limit =
        colon == std::string::npos ? std::nullopt : parse_number(std::string_view(word).substr(colon + 1));
    const bool known = metric == "ttft" || metric == "tpot" || metric == "e2el";
    if (!known || !limit || *limit < 0) {
      throw invalid_argument(
          fmt::format("--goodput {}: must be ttft:MS, tpot:MS or e2el:MS, milliseconds not negative", quote(word)),
          "goodput");
    }
    out.emplace_back(metric, *limit);
  }
  return out;
}

void check_json_object(const std::string& text, const char* flag) {
  if (!text.empty() && !nlohmann::json::parse(text, nullptr, false).is_object())
    throw invalid_argument(fmt::format("--{} {}: must be a JSON object", flag, quote(text)), flag);
}

std::string read_endpoint(const ServeOptions& options) {
  struct Fit {
    const char *backend, *standard, *ending;
  };
  constexpr Fit kFits[] = {{"openai-chat", "/v1/chat/completions", "chat/completions"},
                           {"openai-embeddings", "/v1/embeddings", "embeddings"},
                           {"", "/v1/completions", "completions"}};
  const Fit& fit = *std::find_if(std::begin(kFits), std::end(kFits), [&](const Fit& f) {
    return options.backend == f.backend || std::string_view(f.backend).empty();
  });
  if (options.endpoint.empty()) return fit.standard;
  if (!options.endpoint.starts_with('/') || !options.endpoint.ends_with(fit.ending)) {
    throw invalid_argument(fmt::format("--endpoint {}: must begin with / and end with {} for --backend {}",
                                       quote(options.endpoint), fit.ending, options.backend),
                           "endpoint");
  }
  return options.endpoint;
}

void add_traffic_options(OptionTable& table, ServeOptions& options) {
  table.group("Traffic");
  table.add("request-rate", options.request_rate, "requests per second; inf: all at once").value_name("RATE");
  table
      .add("burstiness", options.burstiness,
           "shape of the gamma distribution of intervals: 1 is a Poisson process, less comes in bursts, inf is a beat")
      .value_name("SHAPE");
  table.add("max-concurrency", options.max_concurrency, "most requests at work; the others wait in the client")
      .range(1, kMany);
  table.add("ramp-up-strategy", options.ramp_up_strategy, "how the rate rises, instead of --request-rate")
      .choices({"none", "linear", "exponential"});
  table.add("ramp-up-start-rps", options.ramp_up_start_rps, "rate at the start").range(1e-6, kMany);
  table.add("ramp-up-end-rps", options.ramp_up_end_rps, "rate at the end").range(1e-6, kMany);
  table.add("num-warmups", options.num_warmups, "requests before the measurement, all the first prompt")
      .range(0, kMany);
  table
      .add("ready-check-timeout-sec", options.ready_check_timeout_sec,
           "seconds to try the first prompt until the server answers it; 0: no such trial")
      .range(0, 1e6);
}

void add_request_options(OptionTable& table, ServeOptions& options) {
  table.group("Requests (default: what the server does)");
  table.add("temperature", options.temperature, "0: always the most likely token").range(0, 100);
  table.add("top-p", options.top_p, "smallest set of tokens with this probability").range(0, 1);
  table.add("top-k", options.top_k, "this many of the most likely tokens; 0, -1: all").range(-1, 1 << 30);
  table.add("min-p", options.min_p, "tokens at least this likely, relative to the best").range(0, 1);
  table.add("frequency-penalty", options.frequency_penalty, "less of what has come often").range(-2, 2);
  table.add("presence-penalty", options.presence_penalty, "less of what has come at all").range(-2, 2);
  table.add("repetition-penalty", options.repetition_penalty, "above 1: repeat less").range(0.01, 100);
  table.add("ignore-eos", options.ignore_eos, "generate the whole length; always so for --dataset-name random");
  table.add("logprobs", options.logprobs, "log-probabilities to ask for").range(0, 1 << 20);
  table.add("extra-body", options.extra_body, "JSON object of more fields").value_name("JSON");
  table.add("chat-template-kwargs", options.chat_template_kwargs, "JSON object of template variables")
      .value_name("JSON");
  table.add("header", options.header, "more headers").value_name("KEY=VALUE [...]");
  table.add("request-id-prefix", options.request_id_prefix, "of X-Request-Id; else bench-<8 hex digits>-");
}

void add_result_options(OptionTable& table, ServeOptions& options) {
  table.group("Results");
  table
      .add("percentile-metrics", options.percentile_metrics,
           "which times to show: some of ttft, tpot, itl, e2el, client_queue_time, e2el_including_client_queue, with "
           "commas (default: ttft,tpot,itl; for embeddings e2el)")
      .value_name("METRIC[,METRIC ...]");
  table.add("metric-percentiles", options.metric_percentiles, "their percentiles, with commas");
  table.add("goodput", options.goodput, "limits of a good request: ttft, tpot, e2el").value_name("METRIC:MS [...]");
  table.add("save-result", options.save_result, "write the results to a JSON file");
  table.add("save-detailed", options.save_detailed, "with the times, texts and errors of each request");
  table.add("append-result", options.append_result, "add a line to the file instead of replacing it");
  table.add("result-dir", options.result_dir, "folder of that file").value_name("DIR");
  table.add("result-filename", options.result_filename, "its name; else made of what was measured").value_name("FILE");
  table.add("metadata", options.metadata, "more fields for it").value_name("KEY=VALUE [...]");
  table.add("label", options.label, "what the file's name begins with, instead of the backend");
  table.add("disable-tqdm", options.disable_tqdm, "no progress bar");
}

}  // namespace

void add_serve_benchmark_options(OptionTable& table, ServeOptions& options) {
  table.group("Server");
  table.add("backend", options.backend, "shape of the server's API")
      .choices({"openai", "vllm", "openai-chat", "openai-embeddings"});
  table.add("base-url", options.base_url, "such as https://host:8000; instead of host and port").value_name("URL");
  table.add("host", options.host, "the server's name or address");
  table.add("port", options.port, "its port").range(1, 65535);
  table.add("endpoint", options.endpoint, "path of the API; that of the backend if it is not given").value_name("PATH");
  table.add("insecure", options.insecure, "https with any certificate");
  table.add("api-key", options.api_key, "key for the server").env("OPENAI_API_KEY").value_name("KEY");
  table.add("model", options.model,
            "model to name in results, and in requests; the first the server lists if not given");
  table.add("served-model-name", options.served_model_name, "model to name in requests");
  table
      .add("tokenizer", options.tokenizer,
           "folder, .gguf file, hub id or tokenizer.json; without it the model's if it is here, else the server's")
      .value_name("MODEL");
  table.add("skip-tokenizer-init", options.skip_tokenizer_init, "no tokenizer: lengths are as the server counts them");
  table.add("seed", options.dataset.seed, "of prompts and of arrivals");
  add_traffic_options(table, options);
  add_dataset_options(table, options.dataset);
  add_request_options(table, options);
  add_result_options(table, options);
  table.group("Without effect");
  table.ignored("tokenizer-mode", Values::kOne, "there is one kind of tokenizer");
  table.ignored("trust-remote-code", Values::kNone, "no code of a model is run");
  table.ignored("plot-timeline", Values::kNone, "there are no plots");
  table.ignored("plot-dataset-stats", Values::kNone, "there are no plots");
  table.group("Refused");
  table.refused("use-beam-search", "beam search is not supported");
  table.refused("profile", "there is no built-in profiler; run the server under perf");
  table.refused("lora-modules", "LoRA is not supported");
  table.refused("self-timed", "there is no dataset with times");
  table.refused("probe-request-rate", "not supported");
}

ServePlan plan_serve_benchmark(ServeOptions& options) {
  ServePlan plan;
  plan.url = options.base_url.empty()
                 ? parse_http_url(fmt::format("http://{}:{}",
                                              options.host.find(':') == std::string::npos ? options.host
                                                                                          : "[" + options.host + "]",
                                              options.port),
                                  "host")
                 : parse_http_url(options.base_url, "base-url");
  plan.endpoint = read_endpoint(options);
  plan.arrivals = read_arrivals(options);
  plan.metrics = read_metrics(options);
  plan.percentiles = read_percentiles(options.metric_percentiles);
  plan.goodput = read_goodput(options.goodput);
  plan.headers = key_values(options.header, "header");
  for (const auto& [name, value] : plan.headers) check_header_value(name + value, "--header");
  check_header_value(options.api_key, "--api-key");
  check_header_value(options.request_id_prefix, "--request-id-prefix");
  plan.metadata = key_values(options.metadata, "metadata");
  check_json_object(options.extra_body, "extra-body");
  check_json_object(options.chat_template_kwargs, "chat-template-kwargs");
  finish_dataset_options(options.dataset);
  if (options.dataset.name == "random") options.ignore_eos = true;
  if (options.skip_tokenizer_init && needs_coder(options.dataset)) {
    throw invalid_argument(
        fmt::format("--skip-tokenizer-init: prompts of --dataset-name {} need a tokenizer", options.dataset.name),
        "skip-tokenizer-init");
  }
  if (!options.save_result && !options.append_result) {
    const bool named = options.save_detailed || !options.result_dir.empty() || !options.result_filename.empty();
    if (named) log_warning("nothing is written without --save-result or --append-result");
  }
  return plan;
}

}  // namespace quire
