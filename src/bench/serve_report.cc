#include "bench/serve_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "bench/python_format.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMs = 1e3;

// Times of one request, in seconds; empty where it has none.
double tpot_of(const RequestOutcome& outcome) {
  if (outcome.output_tokens <= 1) return 0;
  return (outcome.latency - outcome.ttft) / static_cast<double>(outcome.output_tokens - 1);
}

std::vector<double> times_of(std::string_view metric, const std::vector<RequestOutcome>& outcomes) {
  std::vector<double> out;
  for (const RequestOutcome& outcome : outcomes) {
    if (!outcome.success) continue;
    if (metric == "itl") {
      out.insert(out.end(), outcome.itls.begin(), outcome.itls.end());
    } else if (metric != "tpot" || outcome.output_tokens > 1) {
      out.push_back(metric == "ttft"                ? outcome.ttft
                    : metric == "tpot"              ? tpot_of(outcome)
                    : metric == "e2el"              ? outcome.latency
                    : metric == "client_queue_time" ? outcome.queue_time
                                                    : outcome.queue_time + outcome.latency);
    }
  }
  return out;
}

TimeFigures figures_of(const std::string& metric, std::vector<double> seconds, const std::vector<double>& percentiles) {
  TimeFigures figures;
  figures.name = metric;
  figures.percentiles.assign(percentiles.size(), 0);
  if (seconds.empty()) return figures;
  std::sort(seconds.begin(), seconds.end());
  const auto count = static_cast<double>(seconds.size());
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / count;
  const double squares = std::accumulate(seconds.begin(), seconds.end(), 0.0,
                                         [&](double sum, double x) { return sum + (x - mean) * (x - mean); });
  figures.mean = mean * kMs;
  figures.deviation = std::sqrt(squares / count) * kMs;
  figures.median = percentile(seconds, 50) * kMs;
  std::transform(percentiles.begin(), percentiles.end(), figures.percentiles.begin(),
                 [&](double p) { return percentile(seconds, p) * kMs; });
  return figures;
}

bool is_good(const RequestOutcome& outcome, const ServePlan& plan) {
  return std::all_of(plan.goodput.begin(), plan.goodput.end(), [&](const auto& limit) {
    const double time = limit.first == "ttft"   ? outcome.ttft
                        : limit.first == "tpot" ? tpot_of(outcome)
                                                : outcome.latency;
    return time * kMs <= limit.second;
  });
}

// Pieces and requests at work in each second since the first request that succeeded.
void find_peaks(const std::vector<RequestOutcome>& outcomes, ServeReport& report) {
  double first = INFINITY, last = 0;
  for (const RequestOutcome& outcome : outcomes) {
    if (!outcome.success) continue;
    first = std::min(first, outcome.start);
    last = std::max(last, outcome.start + outcome.latency);
  }
  if (std::isinf(first)) return;
  const size_t seconds = static_cast<size_t>(std::ceil(last - first)) + 1;
  std::vector<int64_t> pieces(seconds), begun(seconds + 1);
  for (const RequestOutcome& outcome : outcomes) {
    if (!outcome.success) continue;
    const auto second = [&](double time) { return std::min(static_cast<size_t>(time - first), seconds - 1); };
    double at = outcome.start + outcome.ttft;
    ++pieces[second(at)];
    for (const double itl : outcome.itls) ++pieces[second(at += itl)];
    ++begun[second(outcome.start)];
    --begun[second(outcome.start + outcome.latency) + 1];
  }
  report.peak_output_rate = static_cast<double>(*std::max_element(pieces.begin(), pieces.end()));
  int64_t at_work = 0;
  for (const int64_t change : begun) report.peak_concurrency = std::max(report.peak_concurrency, at_work += change);
}

struct MetricWords {
  std::string_view metric, name, title;
};
constexpr MetricWords kWords[] = {
    {"ttft", "TTFT", "Time to First Token"},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
    {"itl", "ITL", "Inter-token Latency"},
    {"e2el", "E2EL", "End-to-end Latency"},
    {"client_queue_time", "Client Queue Time", "Client Queue Time"},
    {"e2el_including_client_queue", "E2EL incl. Client Queue", "End-to-end Latency incl. Client Queue"},
};

std::string percentile_word(double percent) {
  return percent == std::floor(percent) ? fmt::format("{:.0f}", percent) : python_repr(percent);
}

class Table {
 public:
  static constexpr size_t kWidth = 50;
  void title(std::string_view text, char fill) {
    const size_t missing = kWidth - std::min(text.size(), kWidth);
    text_.append(missing / 2, fill).append(text).append(missing - missing / 2, fill) += '\n';
  }
  void row(std::string_view label, int64_t value) {
    fmt::format_to(std::back_inserter(text_), "{:<40} {:<10}\n", label, value);
  }
  void row(std::string_view label, double value) {
    fmt::format_to(std::back_inserter(text_), "{:<40} {:<10.2f}\n", label, value);
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

ServeReport make_serve_report(const std::vector<RequestOutcome>& outcomes, double seconds, const ServePlan& plan) {
  ServeReport report;
  report.seconds = seconds;
  for (const RequestOutcome& outcome : outcomes) {
    if (!outcome.success) {
      ++report.failed;
      continue;
    }
    ++report.completed;
    report.good += is_good(outcome, plan) ? 1 : 0;
    report.input_tokens += std::max<int64_t>(outcome.prompt_tokens, 0);
    report.output_tokens += std::max<int64_t>(outcome.output_tokens, 0);
  }
  find_peaks(outcomes, report);
  for (const MetricWords& words : kWords) {  // the table's order, whatever that of the flag
    const std::string metric(words.metric);
    if (std::find(plan.metrics.begin(), plan.metrics.end(), metric) != plan.metrics.end())
      report.times.push_back(figures_of(metric, times_of(metric, outcomes), plan.percentiles));
  }
  return report;
}

std::string serve_text(const ServeReport& report, const ServeOptions& options, const ServePlan& plan) {
  const bool generates = options.backend != "openai-embeddings";
  Table table;
  table.title(" Serving Benchmark Result ", '=');
  table.row("Successful requests:", report.completed);
  table.row("Failed requests:", report.failed);
  if (options.max_concurrency) table.row("Maximum request concurrency:", *options.max_concurrency);
  if (!std::isinf(plan.arrivals.request_rate)) table.row("Request rate configured (RPS):", plan.arrivals.request_rate);
  table.row("Benchmark duration (s):", report.seconds);
  table.row("Total input tokens:", report.input_tokens);
  if (generates) table.row("Total generated tokens:", report.output_tokens);
  table.row("Request throughput (req/s):", report.rate(report.completed));
  if (!plan.goodput.empty()) table.row("Request goodput (req/s):", report.rate(report.good));
  if (generates) {
    table.row("Output token throughput (tok/s):", report.rate(report.output_tokens));
    table.row("Peak output token throughput (tok/s):", report.peak_output_rate);
    table.row("Peak concurrent requests:", static_cast<double>(report.peak_concurrency));
  }
  table.row("Total token throughput (tok/s):", report.rate(report.input_tokens + report.output_tokens));
  for (const TimeFigures& times : report.times) {
    const MetricWords& words = *std::find_if(std::begin(kWords), std::end(kWords),
                                             [&](const MetricWords& w) { return w.metric == times.name; });
    table.title(words.title, '-');
    table.row(fmt::format("Mean {} (ms):", words.name), times.mean);
    table.row(fmt::format("Median {} (ms):", words.name), times.median);
    for (size_t i = 0; i < times.percentiles.size(); ++i)
      table.row(fmt::format("P{} {} (ms):", percentile_word(plan.percentiles[i]), words.name), times.percentiles[i]);
  }
  table.title("", '=');
  return std::move(table).text();
}

std::string serve_json(const ServeReport& report, const std::vector<RequestOutcome>& outcomes,
                       const ServeOptions& options, const ServePlan& plan, const ServeIdentity& identity) {
  const auto finite = [](double value) { return std::isinf(value) ? Json("inf") : Json(value); };
  Json json = {{"date", identity.date},
               {"endpoint_type", options.backend},
               {"backend", options.backend},
               {"label", options.label.empty() ? Json() : Json(options.label)},
               {"model_id", identity.model_id},
               {"tokenizer_id", identity.tokenizer_id ? Json(*identity.tokenizer_id) : Json()},
               {"num_prompts", options.dataset.num_prompts}};
  for (const auto& [key, value] : plan.metadata) json[key] = value;
  json["request_rate"] = finite(plan.arrivals.request_rate);
  json["burstiness"] = finite(plan.arrivals.burstiness);
  json["max_concurrency"] = options.max_concurrency ? Json(*options.max_concurrency) : Json();
  if (!plan.arrivals.ramp_up.empty()) {
    json["ramp_up_strategy"] = plan.arrivals.ramp_up;
    json["ramp_up_start_rps"] = plan.arrivals.ramp_up_start;
    json["ramp_up_end_rps"] = plan.arrivals.ramp_up_end;
  }
  json["duration"] = report.seconds;
  json["completed"] = report.completed;
  json["failed"] = report.failed;
  json["total_input_tokens"] = report.input_tokens;
  json["total_output_tokens"] = report.output_tokens;
  json["request_throughput"] = report.rate(report.completed);
  json["request_goodput"] = plan.goodput.empty() ? Json() : Json(report.rate(report.good));
  json["output_throughput"] = report.rate(report.output_tokens);
  json["total_token_throughput"] = report.rate(report.input_tokens + report.output_tokens);
  json["max_output_tokens_per_s"] = report.peak_output_rate;
  json["max_concurrent_requests"] = report.peak_concurrency;
  json["rtfx"] = 0.0;  // of speech
  const auto list = [&](auto&& field) {
    Json out = Json::array();
    for (const RequestOutcome& outcome : outcomes) out.push_back(field(outcome));
    return out;
  };
  json["latencies"] = list([](const RequestOutcome& o) { return o.latency; });
  json["queue_times"] = list([](const RequestOutcome& o) { return o.queue_time; });
  for (const TimeFigures& times : report.times) {
    json["mean_" + times.name + "_ms"] = times.mean;
    json["median_" + times.name + "_ms"] = times.median;
    json["std_" + times.name + "_ms"] = times.deviation;
    for (size_t i = 0; i < times.percentiles.size(); ++i)
      json["p" + percentile_word(plan.percentiles[i]) + "_" + times.name + "_ms"] = times.percentiles[i];
  }
  if (options.save_detailed) {
    json["input_lens"] = list([](const RequestOutcome& o) { return std::max<int64_t>(o.prompt_tokens, 0); });
    json["output_lens"] = list([](const RequestOutcome& o) { return o.success ? o.output_tokens : 0; });
    json["ttfts"] = list([](const RequestOutcome& o) { return o.ttft; });
    json["itls"] = list([](const RequestOutcome& o) { return o.itls; });
    json["start_times"] = list([](const RequestOutcome& o) { return o.start; });
    json["generated_texts"] = list([](const RequestOutcome& o) { return o.text; });
    json["errors"] = list([](const RequestOutcome& o) { return o.error; });
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string serve_result_path(const ServeOptions& options, const ServeIdentity& identity) {
  const auto number = [](const std::string& text) {
    const double value = std::strtod(text.c_str(), nullptr);
    return python_repr(value);
  };
  std::string name = options.result_filename;
  if (name.empty()) {
    const std::string rate =
        options.ramp_up_strategy == "none"
            ? fmt::format("{}qps", number(options.request_rate))
            : fmt::format("ramp-up-{}-{}qps-{}qps", options.ramp_up_strategy, options.ramp_up_start_rps.value_or(0),
                          options.ramp_up_end_rps.value_or(0));
    const std::string concurrency =
        options.max_concurrency ? fmt::format("-concurrency{}", *options.max_concurrency) : std::string();
    std::string label = options.label.empty() ? options.backend : options.label;
    std::replace(label.begin(), label.end(), '/', '_');
    name = fmt::format("{}-{}{}-{}-{}.json", label, rate, concurrency,
                       identity.model_id.substr(identity.model_id.rfind('/') + 1), identity.date);
  }
  return options.result_dir.empty() ? name : (std::filesystem::path(options.result_dir) / name).string();
}

}  // namespace quire
