#include "engine/stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
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

}  // namespace

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
  const EngineClock::time_point now = EngineClock::now();
  const bool pooled = sequence.request->input.pooling != Pooling::kNone;
  const bool prompt_done = pooled ? reason == FinishReason::kStop : sequence.output_len() > 0;
  finished[static_cast<size_t>(reason) - 1] += 1;
  request_num_preemptions.observe(sequence.preemptions);
  request_prompt_tokens.observe(static_cast<double>(sequence.prompt_len));
  if (!pooled) request_generation_tokens.observe(static_cast<double>(sequence.output_len()));
  e2e_latency.observe(seconds(now - sequence.request->arrival));
  if (!prompt_done) return;
  request_prefill_kv_computed_tokens.observe(static_cast<double>(sequence.prompt_len - sequence.cached_tokens));
  inference_time.observe(seconds((pooled ? now : sequence.last_token) - sequence.first_scheduled));
  prefill_time.observe(seconds((pooled ? now : sequence.first_token) - sequence.first_scheduled));
  if (pooled) return;
  const double decode = seconds(sequence.last_token - sequence.first_token);
  decode_time.observe(decode);
  if (sequence.output_len() > 1) {
    time_per_output_token.observe(decode / static_cast<double>(sequence.output_len() - 1));
  }
}

void EngineMetrics::Impl::observe_end(const EngineRequest& request) {
  if (request.input.pooling != Pooling::kNone) return;
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
  const std::string labels = prometheus_labels({{"engine", "0"}, {"model_name", m.model_name}});
  PrometheusText out;
  const auto gauge = [&](const char* name, const char* help, auto value) {
    out.head(name, "gauge", help);
    out.sample(name, labels, value);
  };
  const auto counter = [&](const char* name, const char* help, const std::atomic<int64_t>& value) {
    out.head(name, "counter", help);
    out.sample(name, labels, value.load());
  };
  const auto histogram = [&](const char* name, const char* help, const Histogram& value) {
    out.head(name, "histogram", help);
    out.histogram(name, labels, value);
  };
  // One of several samples of a metric, which differ in one label.
  const auto part = [&](const char* name, const char* label, const char* value, int64_t number) {
    out.sample(name, fmt::format("{},{}=\"{}\"", labels, label, value), number);
  };

  const int64_t waiting = m.waiting.load(), deferred = std::min(waiting, m.deferred.load());
  gauge("vllm:num_requests_running", "Sequences that are being computed.", m.running.load());
  gauge("vllm:num_requests_waiting", "Sequences that wait to be computed.", waiting);
  const char* name = "vllm:num_requests_waiting_by_reason";
  out.head(name, "gauge", "Waiting sequences: for room in the step or the cache, or for another one's prompt.");
  part(name, "reason", "capacity", waiting - deferred);
  part(name, "reason", "deferred", deferred);
  const auto total = static_cast<double>(m.total_blocks.load()), free = static_cast<double>(m.free_blocks.load());
  gauge("vllm:kv_cache_usage_perc", "KV cache in use, 1 = all of it.", total > 0 ? 1.0 - free / total : 0.0);
  name = "vllm:cache_config_info";
  out.head(name, "gauge", "Settings of the KV cache, the attention backend and the device.");
  out.sample(name, labels + "," + m.cache_config_labels, int64_t{1});
  counter("vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.", m.prefix_cache_queries);
  counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.", m.prefix_cache_hits);
  counter("vllm:num_preemptions_total", "Sequences that lost their blocks and were computed again.", m.preemptions);
  counter("vllm:prompt_tokens_total", "Prompt tokens of started requests.", m.prompt_tokens);
  counter("vllm:prompt_tokens_cached_total", "Prompt tokens of started requests that were in the prefix cache.",
          m.prompt_tokens_cached);
  const int64_t cached = m.prompt_tokens_cached.load();
  name = "vllm:prompt_tokens_by_source_total";
  out.head(name, "counter", "Prompt tokens of started requests by where they came from.");
  part(name, "source", "local_compute", m.prompt_tokens.load() - cached);
  part(name, "source", "local_cache_hit", cached);
  name = "vllm:prompt_tokens_cached_by_source_total";
  out.head(name, "counter", "Prompt tokens that were cached by where the cache is.");
  part(name, "source", "device", cached);
  counter("vllm:generation_tokens_total", "Generated tokens.", m.generation_tokens);
  name = "vllm:request_success_total";
  out.head(name, "counter", "Finished sequences by reason.");
  for (size_t i = 0; i < m.finished.size(); ++i) part(name, "finished_reason", kFinishNames[i], m.finished[i].load());
  name = "vllm:admission_rejections_total";
  out.head(name, "counter", "Requests that were turned away although nothing was wrong with them.");
  for (size_t i = 0; i < m.rejected.size(); ++i) {
    out.sample(name, prometheus_labels({{"model_name", m.model_name}, {"reason", kRejectionNames[i]}}),
               m.rejected[i].load());
  }
  histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", m.time_to_first_token);
  histogram("vllm:inter_token_latency_seconds", "Between two tokens of a sequence.", m.inter_token_latency);
  histogram("vllm:request_time_per_output_token_seconds",
            "Mean time of an output token of a sequence, without the first.", m.time_per_output_token);
  histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.", m.e2e_latency);
  histogram("vllm:request_queue_time_seconds", "From arrival to the first step.", m.queue_time);
  histogram("vllm:request_inference_time_seconds", "From the first step to the last token.", m.inference_time);
  histogram("vllm:request_prefill_time_seconds", "From the first step to the first token.", m.prefill_time);
  histogram("vllm:request_decode_time_seconds", "From the first to the last token.", m.decode_time);
  histogram("vllm:request_prompt_tokens", "Prompt tokens of a sequence.", m.request_prompt_tokens);
  histogram("vllm:request_generation_tokens", "Generated tokens of a sequence.", m.request_generation_tokens);
  histogram("vllm:request_max_num_generation_tokens", "Most tokens that a sequence of a request generated.",
            m.request_max_num_generation_tokens);
  histogram("vllm:request_prefill_kv_computed_tokens", "Prompt tokens of a sequence that were not in the prefix cache.",
            m.request_prefill_kv_computed_tokens);
  histogram("vllm:request_params_max_tokens", "max_tokens of a request.", m.request_params_max_tokens);
  histogram("vllm:request_params_n", "n of a request.", m.request_params_n);
  histogram("vllm:request_num_preemptions", "Preemptions of a sequence.", m.request_num_preemptions);
  histogram("vllm:iteration_tokens_total", "Tokens of a step.", m.iteration_tokens);
  return out.take();
}

}  // namespace quire
