#include "engine/engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"

namespace quire {
namespace {

constexpr const char* kStepFailed = "the engine failed to compute this request";

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(EngineClock::now().time_since_epoch()).count();
}

}  // namespace

EngineLoop::EngineLoop(const Options& options, Scheduler& scheduler, Runner& runner, BlockPool& pool,
                       EngineQueue& queue, RequestGate& gate, EngineMetrics& metrics)
    : options_(options),
      scheduler_(scheduler),
      runner_(runner),
      pool_(pool),
      queue_(queue),
      gate_(gate),
      metrics_(metrics.impl()),
      stats_line_(EngineClock::now()) {
  metrics_.total_blocks = pool.blocks();
  metrics_.free_blocks = pool.free_blocks();
}

int64_t EngineLoop::step_age_ms() const {
  const int64_t started = step_started_ms_.load();
  return started == 0 ? 0 : now_ms() - started;
}

void EngineLoop::run() {
  std::vector<EngineCommand> commands;
  for (bool more = true; more;) {
    try {
      more = turn(commands);
    } catch (const std::exception& error) {  // memory ran out between steps: what is open ends, the engine does not
      log_error(fmt::format("the engine thread failed: {}", error.what()));
      ++failed_in_a_row_;
      end_all(FinishReason::kError, kStepFailed);
      notify_and_sweep();
    }
  }
}

bool EngineLoop::turn(std::vector<EngineCommand>& commands) {
  EngineClock::time_point deadline = EngineQueue::kDoNotWait;
  if (scheduler_.idle()) {
    const auto line_due = options_.log_stats ? stats_line_.due(metrics_.snapshot()) : std::nullopt;
    deadline = line_due.value_or(EngineQueue::kForever);
  }
  queue_.take(commands, deadline);
  if (deadline == EngineQueue::kForever) stats_line_.restart(EngineClock::now());
  bool more = true;
  for (EngineCommand& command : commands) {
    if (command.kind == EngineCommand::Kind::kExit) {
      more = false;
    } else {
      handle(command);
    }
  }
  if (!more) end_all(FinishReason::kAbort, {});
  if (!scheduler_.idle()) step();
  publish_gauges();
  notify_and_sweep();
  if (options_.log_stats) {
    if (const auto line = stats_line_.take(metrics_.snapshot(), EngineClock::now())) log_info(*line);
  }
  return more;
}

void EngineLoop::handle(EngineCommand& command) {
  if (command.kind == EngineCommand::Kind::kSubmit) return submit(std::move(command.request));
  if (command.kind == EngineCommand::Kind::kResetPrefixCache) return pool_.reset_prefix_cache();
  if (command.kind == EngineCommand::Kind::kAbortAll) return end_all(FinishReason::kAbort, {});
  const auto it = requests_.find(command.number);
  if (it == requests_.end()) return;  // ended meanwhile
  if (command.kind == EngineCommand::Kind::kCancel) return end_request(*it->second, FinishReason::kAbort, {});
  stop_choice(*it->second->sequences[static_cast<size_t>(command.choice)]);
}

void EngineLoop::submit(std::unique_ptr<EngineRequest> request) {
  EngineRequest& r = *request;
  const SamplingParams& params = r.input.params;
  requests_.emplace(r.number, std::move(request));
  for (const auto& sequence : r.sequences) scheduler_.add(sequence.get());
  metrics_.request_params_n.observe(params.n);
  metrics_.request_params_max_tokens.observe(static_cast<double>(*params.max_tokens));
}

void EngineLoop::stop_choice(Sequence& sequence) {
  if (sequence.status == SequenceStatus::kFinished) return;
  metrics_.observe_finish(sequence, FinishReason::kStop);
  scheduler_.finish(&sequence);
  left(*sequence.request);
}

void EngineLoop::end_request(EngineRequest& request, FinishReason reason, const std::string& error) {
  for (const auto& sequence : request.sequences) {
    if (sequence->status == SequenceStatus::kFinished) continue;
    GenerationEvent event;
    event.choice = sequence->choice;
    event.finish = reason;
    event.error = error;
    finish(*sequence, std::move(event));
  }
}

void EngineLoop::end_all(FinishReason reason, const std::string& error) {
  for (auto& [number, request] : requests_) end_request(*request, reason, error);
}

void EngineLoop::note_started(const std::vector<ScheduledSequence>& step, EngineClock::time_point now) {
  int64_t tokens = 0;
  for (const ScheduledSequence& scheduled : step) {
    tokens += scheduled.query_len;
    Sequence& sequence = *scheduled.sequence;
    if (sequence.first_scheduled != EngineClock::time_point{}) continue;
    sequence.first_scheduled = now;
    metrics_.observe_start(sequence);
    if (sequence.choice == 0) sequence.request->client->set_cached_tokens(sequence.cached_tokens);
  }
  metrics_.iteration_tokens.observe(static_cast<double>(tokens));
}

void EngineLoop::step() {
  const std::vector<ScheduledSequence>& step = scheduler_.schedule();
  if (step.empty()) return;
  step_started_ms_ = now_ms();
  try {
    note_started(step, EngineClock::now());
    std::vector<Runner::Sampled>& sampled = runner_.run(step);
    scheduler_.step_done();
    const EngineClock::time_point now = EngineClock::now();
    for (Runner::Sampled& one : sampled) hand_over(one, now);
    failed_in_a_row_ = 0;
  } catch (const std::exception& error) {
    fail_step(step, error.what());
  }
  step_started_ms_ = 0;
}

// The step's sequences fail; the others go on. The cause is for the log: it may say more than a client should see.
void EngineLoop::fail_step(const std::vector<ScheduledSequence>& step, const char* why) {
  log_error(fmt::format("a step of {} sequences failed: {}", step.size(), why));
  ++failed_in_a_row_;
  while (!step.empty()) {  // finish() takes each one out of the step
    Sequence& sequence = *step.back().sequence;
    GenerationEvent event;
    event.choice = sequence.choice;
    event.finish = FinishReason::kError;
    event.error = kStepFailed;
    finish(sequence, std::move(event));
  }
}

void EngineLoop::hand_over(Runner::Sampled& sampled, EngineClock::time_point now) {
  Sequence& sequence = *sampled.sequence;
  EngineRequest& request = *sequence.request;
  const SamplingParams& params = request.input.params;
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
  metrics_.observe_token(sequence, now);
  if (sequence.output_len() == 0) sequence.first_token = now;
  sequence.last_token = now;
  sequence.tokens.push_back(sampled.result.token);
  event.token = sampled.result.token;
  event.logprobs = std::move(sampled.result.logprobs);

  const auto begin = request.stop_ids.begin(), found = std::find(begin, request.stop_ids.end(), event.token);
  if (found != request.stop_ids.end() && sequence.output_len() > params.min_tokens) {
    event.finish = FinishReason::kStop;
    if (found - begin >= request.eos_ids) event.stop_token_id = event.token;  // EOS goes without saying
  } else if (sequence.output_len() >= *params.max_tokens || sequence.length() >= options_.max_model_len) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish != FinishReason::kNone) return finish(sequence, std::move(event));
  request.client->push(std::move(event));
  if (to_notify_.empty() || to_notify_.back() != &request) to_notify_.push_back(&request);
}

void EngineLoop::finish(Sequence& sequence, GenerationEvent event) {
  EngineRequest& request = *sequence.request;
  metrics_.observe_finish(sequence, event.finish);
  scheduler_.finish(&sequence);
  left(request);
  request.client->push(std::move(event));
  if (to_notify_.empty() || to_notify_.back() != &request) to_notify_.push_back(&request);
}

void EngineLoop::left(EngineRequest& request) {
  if (--request.unfinished == 0) ended_.push_back(request.number);
}

void EngineLoop::publish_gauges() {
  metrics_.running = scheduler_.running();
  metrics_.waiting = scheduler_.waiting();
  metrics_.free_blocks = pool_.free_blocks();
  metrics_.preemptions = scheduler_.preemptions();
  metrics_.prefix_cache_queries = scheduler_.prefix_cache_queries();
  metrics_.prefix_cache_hits = scheduler_.prefix_cache_hits();
}

// After the gauges: who hears that a request has ended finds it gone from them.
void EngineLoop::notify_and_sweep() {
  for (EngineRequest* request : to_notify_) request->client->notify();
  to_notify_.clear();
  for (const uint64_t number : ended_) {
    const auto it = requests_.find(number);
    metrics_.observe_end(*it->second);
    const auto sequences = static_cast<int64_t>(it->second->sequences.size());
    requests_.erase(it);
    gate_.leave(sequences);
  }
  ended_.clear();
}

}  // namespace quire
