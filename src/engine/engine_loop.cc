#include "engine/engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/log.h"

namespace quire {
namespace {

double seconds(EngineClock::duration duration) { return std::chrono::duration<double>(duration).count(); }

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(EngineClock::now().time_since_epoch()).count();
}

}  // namespace

EngineLoop::EngineLoop(const Options& options, Scheduler& scheduler, Runner& runner, BlockPool& pool,
                       EngineQueue& queue, EngineMetrics& metrics)
    : options_(options), scheduler_(scheduler), runner_(runner), pool_(pool), queue_(queue), metrics_(metrics.impl()) {
  metrics_.total_blocks = pool.blocks();
  metrics_.free_blocks = pool.free_blocks();
}

int64_t EngineLoop::step_age_ms() const {
  const int64_t started = step_started_ms_.load();
  return started == 0 ? 0 : now_ms() - started;
}

void EngineLoop::run() {
  std::vector<EngineCommand> commands;
  for (;;) {
    queue_.take(commands, /*block=*/scheduler_.idle());
    for (EngineCommand& command : commands) {
      if (command.kind == EngineCommand::Kind::kExit) return;
      handle(command);
    }
    if (!scheduler_.idle()) step();
    publish_gauges();
    for (EngineRequest* request : to_notify_) request->client->notify();
    to_notify_.clear();
    std::erase_if(requests_, [](const auto& entry) { return entry.second->unfinished == 0; });
    open_requests_ = static_cast<int64_t>(requests_.size());
    log_stats();
  }
}

void EngineLoop::handle(EngineCommand& command) {
  if (command.kind == EngineCommand::Kind::kSubmit) return submit(std::move(command.request));
  if (command.kind == EngineCommand::Kind::kResetPrefixCache) return pool_.reset_prefix_cache();
  if (command.kind == EngineCommand::Kind::kAbortAll) {
    for (auto& [number, request] : requests_) abort_request(*request);
    return;
  }
  const auto it = requests_.find(command.number);
  if (it == requests_.end()) return;  // finished meanwhile
  if (command.kind == EngineCommand::Kind::kCancel) return abort_request(*it->second);
  Sequence& sequence = *it->second->sequences[static_cast<size_t>(command.choice)];
  if (sequence.status == SequenceStatus::kFinished) return;
  record_finish(sequence, FinishReason::kStop);
  scheduler_.finish(&sequence);
  --it->second->unfinished;
}

void EngineLoop::submit(std::unique_ptr<EngineRequest> request) {
  EngineRequest& r = *request;
  requests_.emplace(r.number, std::move(request));
  const SamplingParams& params = r.input.params;
  if (params.prompt_logprobs) r.client->prompt_logprobs_to_fill().resize(r.input.prompt_ids.size());
  for (int32_t choice = 0; choice < params.n; ++choice) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request = &r;
    sequence->choice = choice;
    sequence->tokens = r.input.prompt_ids;
    sequence->prompt_len = sequence->length();
    sequence->tokens.reserve(r.input.prompt_ids.size() + static_cast<size_t>(*params.max_tokens));
    scheduler_.add(sequence.get());
    r.sequences.push_back(std::move(sequence));
  }
  r.unfinished = params.n;
  open_requests_ = static_cast<int64_t>(requests_.size());
  metrics_.request_params_n.observe(params.n);
  metrics_.request_params_max_tokens.observe(static_cast<double>(*params.max_tokens));
}

void EngineLoop::abort_request(EngineRequest& request) {
  for (const auto& sequence : request.sequences) {
    if (sequence->status == SequenceStatus::kFinished) continue;
    GenerationEvent event;
    event.choice = sequence->choice;
    event.finish = FinishReason::kAbort;
    finish(*sequence, std::move(event));
  }
}

void EngineLoop::step() {
  const std::vector<ScheduledSequence>& step = scheduler_.schedule();
  if (step.empty()) return;
  step_started_ms_ = now_ms();
  const EngineClock::time_point begin = EngineClock::now();
  int64_t tokens = 0;
  for (const ScheduledSequence& scheduled : step) {
    tokens += scheduled.query_len;
    Sequence& sequence = *scheduled.sequence;
    if (sequence.first_scheduled != EngineClock::time_point{}) continue;
    sequence.first_scheduled = begin;
    metrics_.queue_time.observe(seconds(begin - sequence.request->arrival));
    metrics_.prompt_tokens += sequence.prompt_len;
    if (sequence.choice == 0) sequence.request->client->set_cached_tokens(sequence.cached_tokens);
  }
  metrics_.iteration_tokens.observe(static_cast<double>(tokens));
  try {
    const std::vector<Runner::Sampled>& sampled = runner_.run(step);
    scheduler_.step_done();
    for (const Runner::Sampled& one : sampled) hand_over(one);
  } catch (const std::exception& error) {
    // The step's requests fail; the others go on.
    log_error(fmt::format("a step failed: {}", error.what()));
    std::vector<Sequence*> failed;
    for (const ScheduledSequence& scheduled : step) failed.push_back(scheduled.sequence);
    for (Sequence* sequence : failed) {
      GenerationEvent event;
      event.choice = sequence->choice;
      event.finish = FinishReason::kError;
      event.error = "the engine failed to compute this request";
      finish(*sequence, std::move(event));
    }
  }
  step_started_ms_ = 0;
}

void EngineLoop::hand_over(const Runner::Sampled& sampled) {
  Sequence& sequence = *sampled.sequence;
  const SamplingParams& params = sequence.request->input.params;
  GenerationEvent event;
  event.choice = sequence.choice;
  if (*params.max_tokens == 0) {  // only the prompt was wanted
    event.finish = FinishReason::kLength;
    return finish(sequence, std::move(event));
  }
  if (sampled.result.token < 0) {
    event.finish = FinishReason::kError;
    event.error = "no token can be chosen: every logit is masked or not a number";
    return finish(sequence, std::move(event));
  }
  const EngineClock::time_point now = EngineClock::now();
  if (sequence.output_len() == 0) {
    sequence.first_token = now;
    metrics_.time_to_first_token.observe(seconds(now - sequence.request->arrival));
  } else {
    metrics_.inter_token_latency.observe(seconds(now - sequence.last_token));
  }
  sequence.last_token = now;
  metrics_.generation_tokens += 1;

  sequence.tokens.push_back(sampled.result.token);
  event.token = sampled.result.token;
  event.logprobs = sampled.result.logprobs;
  const auto& stop_ids = sequence.request->stop_ids;
  const bool may_stop = sequence.output_len() > params.min_tokens;
  if (may_stop && std::find(stop_ids.begin(), stop_ids.end(), event.token) != stop_ids.end()) {
    event.finish = FinishReason::kStop;
    // EOS counts as such even if it is named as a stop token, unless it is ignored.
    const bool named = std::find(params.stop_token_ids.begin(), params.stop_token_ids.end(), event.token) !=
                       params.stop_token_ids.end();
    if (named) event.stop_token_id = event.token;
  } else if (sequence.output_len() >= *params.max_tokens || sequence.length() >= options_.max_model_len) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish != FinishReason::kNone) return finish(sequence, std::move(event));
  sequence.request->client->push(std::move(event));
  if (to_notify_.empty() || to_notify_.back() != sequence.request) to_notify_.push_back(sequence.request);
}

void EngineLoop::finish(Sequence& sequence, GenerationEvent event) {
  record_finish(sequence, event.finish);
  scheduler_.finish(&sequence);
  --sequence.request->unfinished;
  sequence.request->client->push(std::move(event));
  if (to_notify_.empty() || to_notify_.back() != sequence.request) to_notify_.push_back(sequence.request);
}

void EngineLoop::record_finish(const Sequence& sequence, FinishReason reason) {
  metrics_.finished[static_cast<size_t>(reason) - 1] += 1;
  metrics_.request_num_preemptions.observe(sequence.preemptions);
  metrics_.request_prompt_tokens.observe(static_cast<double>(sequence.prompt_len));
  metrics_.request_generation_tokens.observe(static_cast<double>(sequence.output_len()));
  metrics_.e2e_latency.observe(seconds(EngineClock::now() - sequence.request->arrival));
  if (sequence.output_len() == 0) return;
  metrics_.inference_time.observe(seconds(sequence.last_token - sequence.first_scheduled));
  metrics_.prefill_time.observe(seconds(sequence.first_token - sequence.first_scheduled));
  const double decode = seconds(sequence.last_token - sequence.first_token);
  metrics_.decode_time.observe(decode);
  if (sequence.output_len() > 1)
    metrics_.time_per_output_token.observe(decode / static_cast<double>(sequence.output_len() - 1));
}

void EngineLoop::publish_gauges() {
  metrics_.running = scheduler_.running();
  metrics_.waiting = scheduler_.waiting();
  metrics_.free_blocks = pool_.free_blocks();
  metrics_.preemptions = scheduler_.preemptions();
  metrics_.prefix_cache_queries = scheduler_.prefix_cache_queries();
  metrics_.prefix_cache_hits = scheduler_.prefix_cache_hits();
}

void EngineLoop::log_stats() {
  constexpr double kPeriod = 10.0;
  const EngineClock::time_point now = EngineClock::now();
  const double elapsed = seconds(now - last_log_);
  if (elapsed < kPeriod) return;
  const int64_t prompt = metrics_.prompt_tokens, generated = metrics_.generation_tokens;
  // The first step after an idle time ends a period that says nothing of the present.
  const bool quiet = prompt == logged_prompt_tokens_ && generated == logged_generation_tokens_;
  if (options_.log_stats && !quiet && !scheduler_.idle()) {
    const double hits = static_cast<double>(scheduler_.prefix_cache_hits()),
                 queries = static_cast<double>(scheduler_.prefix_cache_queries());
    log_info(
        fmt::format("Engine 000: Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} tokens/s, "
                    "Running: {} reqs, "
                    "Waiting: {} reqs, CPU KV cache usage: {:.1f}%, Prefix cache hit rate: {:.1f}%",
                    static_cast<double>(prompt - logged_prompt_tokens_) / elapsed,
                    static_cast<double>(generated - logged_generation_tokens_) / elapsed, scheduler_.running(),
                    scheduler_.waiting(),
                    100.0 * (1.0 - static_cast<double>(pool_.free_blocks()) / static_cast<double>(pool_.blocks())),
                    queries > 0 ? 100.0 * hits / queries : 0.0));
  }
  last_log_ = now;
  logged_prompt_tokens_ = prompt;
  logged_generation_tokens_ = generated;
}

}  // namespace quire
