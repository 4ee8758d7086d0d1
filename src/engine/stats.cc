#include "engine/stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "engine/stats_impl.h"

namespace quire {
namespace {

// 1, 2, 5, 10, 20, 50, ... up to the limit.
std::vector<double> one_two_five(int64_t limit) {
  std::vector<double> bounds;
  for (int64_t decade = 1;; decade *= 10) {
    for (const int64_t step : {1, 2, 5}) {
      if (decade * step > limit) return bounds;
      bounds.push_back(static_cast<double>(decade * step));
    }
  }
}

const std::vector<double> kFirstTokenBounds = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                               1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const std::vector<double> kTokenBounds = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                          .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kRequestBounds = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                            30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};

double seconds(EngineClock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// As Python prints it, since Prometheus' Python client does: whole numbers with ".0".
std::string prometheus_number(double x) {
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string escape_label(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
  const auto bucket = static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.store(sum_.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);  // one writer
}

void Histogram::render(std::string& out, const std::string& name, const std::string& labels) const {
  int64_t total = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    total += counts_[i].load(std::memory_order_relaxed);
    fmt::format_to(std::back_inserter(out), "{}_bucket{{{},le=\"{}\"}} {}\n", name, labels,
                   prometheus_number(bounds_[i]), total);
  }
  total += counts_.back().load(std::memory_order_relaxed);
  fmt::format_to(std::back_inserter(out),
                 "{0}_bucket{{{1},le=\"+Inf\"}} {2}\n{0}_count{{{1}}} {2}\n{0}_sum{{{1}}} {3}\n", name, labels, total,
                 sum_.load(std::memory_order_relaxed));
}

EngineMetrics::Impl::Impl(std::string name, int64_t max_model_len)
    : model_name(std::move(name)),
      time_to_first_token(kFirstTokenBounds),
      inter_token_latency(kTokenBounds),
      time_per_output_token(kTokenBounds),
      e2e_latency(kRequestBounds),
      queue_time(kRequestBounds),
      inference_time(kRequestBounds),
      prefill_time(kRequestBounds),
      decode_time(kRequestBounds),
      request_prompt_tokens(one_two_five(max_model_len)),
      request_generation_tokens(one_two_five(max_model_len)),
      request_max_num_generation_tokens(one_two_five(max_model_len)),
      request_params_max_tokens(one_two_five(max_model_len)),
      request_prefill_kv_computed_tokens(one_two_five(max_model_len)),
      request_params_n({1, 2, 5, 10, 20}),
      request_num_preemptions({1, 2, 3, 4, 5, 10, 20}),
      iteration_tokens({1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}) {}

void EngineMetrics::Impl::observe_start(const Sequence& sequence) {
  queue_time.observe(seconds(sequence.first_scheduled - sequence.request->arrival));
  prompt_tokens += sequence.prompt_len;
  prompt_tokens_cached += sequence.cached_tokens;
}

void EngineMetrics::Impl::observe_token(const Sequence& sequence, EngineClock::time_point now) {
  generation_tokens += 1;
  if (sequence.output_len() == 0) {
    time_to_first_token.observe(seconds(now - sequence.request->arrival));
  } else {
    inter_token_latency.observe(seconds(now - sequence.last_token));
  }
}

void EngineMetrics::Impl::observe_finish(const Sequence& sequence, FinishReason reason) {
  finished[static_cast<size_t>(reason) - 1] += 1;
  request_num_preemptions.observe(sequence.preemptions);
  request_prompt_tokens.observe(static_cast<double>(sequence.prompt_len));
  request_generation_tokens.observe(static_cast<double>(sequence.output_len()));
  e2e_latency.observe(seconds(EngineClock::now() - sequence.request->arrival));
  if (sequence.output_len() == 0) return;
  request_prefill_kv_computed_tokens.observe(static_cast<double>(sequence.prompt_len - sequence.cached_tokens));
  inference_time.observe(seconds(sequence.last_token - sequence.first_scheduled));
  prefill_time.observe(seconds(sequence.first_token - sequence.first_scheduled));
  const double decode = seconds(sequence.last_token - sequence.first_token);
  decode_time.observe(decode);
  if (sequence.output_len() > 1) {
    time_per_output_token.observe(decode / static_cast<double>(sequence.output_len() - 1));
  }
}

void EngineMetrics::Impl::observe_end(const EngineRequest& request) {
  int64_t longest = 0;
  for (const auto& sequence : request.sequences) longest = std::max(longest, sequence->output_len());
  request_max_num_generation_tokens.observe(static_cast<double>(longest));
}

EngineMetrics::Snapshot EngineMetrics::Impl::snapshot() const {
  Snapshot s;
  s.running = running.load();
  s.waiting = waiting.load();
  s.preemptions = preemptions.load();
  s.total_blocks = total_blocks.load();
  s.free_blocks = free_blocks.load();
  s.prompt_tokens = prompt_tokens.load();
  s.generation_tokens = generation_tokens.load();
  s.prefix_cache_queries = prefix_cache_queries.load();
  s.prefix_cache_hits = prefix_cache_hits.load();
  return s;
}

EngineMetrics::EngineMetrics(std::string model_name, int64_t max_model_len)
    : impl_(std::make_unique<Impl>(std::move(model_name), max_model_len)) {}

EngineMetrics::~EngineMetrics() = default;

EngineMetrics::Snapshot EngineMetrics::snapshot() const { return impl_->snapshot(); }

std::string EngineMetrics::render() const {
  const Impl& m = *impl_;
  const std::string labels = fmt::format("engine=\"0\",model_name=\"{}\"", escape_label(m.model_name));
  std::string out;
  const auto head = [&](const char* name, const char* type, const char* help) {
    fmt::format_to(std::back_inserter(out), "# HELP vllm:{0} {2}\n# TYPE vllm:{0} {1}\n", name, type, help);
  };
  const auto gauge = [&](const char* name, const char* help, double value) {
    head(name, "gauge", help);
    fmt::format_to(std::back_inserter(out), "vllm:{}{{{}}} {}\n", name, labels, value);
  };
  const auto counter = [&](const char* name, const char* help, const std::atomic<int64_t>& value) {
    head(name, "counter", help);
    fmt::format_to(std::back_inserter(out), "vllm:{}_total{{{}}} {}\n", name, labels, value.load());
  };
  const auto histogram = [&](const char* name, const char* help, const Histogram& value) {
    head(name, "histogram", help);
    value.render(out, fmt::format("vllm:{}", name), labels);
  };

  gauge("num_requests_running", "Sequences that are being computed.", static_cast<double>(m.running.load()));
  gauge("num_requests_waiting", "Sequences that wait to be computed.", static_cast<double>(m.waiting.load()));
  const auto total = static_cast<double>(m.total_blocks.load()), free = static_cast<double>(m.free_blocks.load());
  gauge("kv_cache_usage_perc", "KV cache in use, 1 = all of it.", total > 0 ? 1.0 - free / total : 0.0);
  head("cache_config_info", "gauge", "Settings of the KV cache and the attention backend.");
  fmt::format_to(std::back_inserter(out), "vllm:cache_config_info{{{},{}}} 1\n", labels, m.cache_config_labels);
  counter("prefix_cache_queries", "Tokens looked up in the prefix cache.", m.prefix_cache_queries);
  counter("prefix_cache_hits", "Tokens found in the prefix cache.", m.prefix_cache_hits);
  counter("num_preemptions", "Sequences that lost their blocks and were computed again.", m.preemptions);
  counter("prompt_tokens", "Prompt tokens of started requests.", m.prompt_tokens);
  counter("prompt_tokens_cached", "Prompt tokens of started requests that were in the prefix cache.",
          m.prompt_tokens_cached);
  head("prompt_tokens_by_source", "counter", "Prompt tokens of started requests by where they came from.");
  const int64_t cached = m.prompt_tokens_cached.load(), computed = m.prompt_tokens.load() - cached;
  for (const auto& [source, tokens] : {std::pair("local_compute", computed), std::pair("local_cache_hit", cached)}) {
    fmt::format_to(std::back_inserter(out), "vllm:prompt_tokens_by_source_total{{{},source=\"{}\"}} {}\n", labels,
                   source, tokens);
  }
  counter("generation_tokens", "Generated tokens.", m.generation_tokens);
  head("request_success", "counter", "Finished sequences by reason.");
  for (size_t i = 0; i < m.finished.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "vllm:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels,
                   kFinishNames[i], m.finished[i].load());
  }
  histogram("time_to_first_token_seconds", "From arrival to the first token.", m.time_to_first_token);
  histogram("inter_token_latency_seconds", "Between two tokens of a sequence.", m.inter_token_latency);
  histogram("request_time_per_output_token_seconds", "Mean time of an output token of a sequence, without the first.",
            m.time_per_output_token);
  histogram("e2e_request_latency_seconds", "From arrival to the last token.", m.e2e_latency);
  histogram("request_queue_time_seconds", "From arrival to the first step.", m.queue_time);
  histogram("request_inference_time_seconds", "From the first step to the last token.", m.inference_time);
  histogram("request_prefill_time_seconds", "From the first step to the first token.", m.prefill_time);
  histogram("request_decode_time_seconds", "From the first to the last token.", m.decode_time);
  histogram("request_prompt_tokens", "Prompt tokens of a sequence.", m.request_prompt_tokens);
  histogram("request_generation_tokens", "Generated tokens of a sequence.", m.request_generation_tokens);
  histogram("request_max_num_generation_tokens", "Most tokens that a sequence of a request generated.",
            m.request_max_num_generation_tokens);
  histogram("request_prefill_kv_computed_tokens", "Prompt tokens of a sequence that were not in the prefix cache.",
            m.request_prefill_kv_computed_tokens);
  histogram("request_params_max_tokens", "max_tokens of a request.", m.request_params_max_tokens);
  histogram("request_params_n", "n of a request.", m.request_params_n);
  histogram("request_num_preemptions", "Preemptions of a sequence.", m.request_num_preemptions);
  histogram("iteration_tokens_total", "Tokens of a step.", m.iteration_tokens);
  return out;
}

}  // namespace quire
