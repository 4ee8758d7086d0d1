#include "engine/engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/pooling.h"

namespace quire {
namespace {

constexpr const char* kFailed = "the engine failed to compute this request";
constexpr const char* kNoEmbedding = "the embedding has values that are not numbers";
constexpr const char* kNoToken = "no token can be chosen: no logit is a finite number";
constexpr const char* kNoTokenLeft =
    "no token can be chosen: allowed_token_ids, bad_words and min_tokens of this request leave none";

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(EngineClock::now().time_since_epoch()).count();
}

// The cause is for the log only: it may say more than a client should see.
void log_failure(const char* what, const std::exception& error) noexcept {
  try {
    log_error(fmt::format("{}: {}", what, error.what()));
  } catch (const std::exception&) {  // no memory even for this: the clients are told all the same
  }
}

GenerationEvent last_event(int32_t choice, FinishReason reason, const char* error) noexcept {
  GenerationEvent event;
  event.choice = choice;
  event.finish = reason;
  try {
    event.error = error;
  } catch (const std::bad_alloc&) {  // the reason says enough
  }
  return event;
}

GenerationEvent refusal(int32_t choice, const char* error) noexcept {
  GenerationEvent event = last_event(choice, FinishReason::kError, error);
  event.error_kind = ErrorKind::kInvalidArgument;
  return event;
}

// Could the parameters leave no token to choose?
bool masks_tokens(const SamplingParams& params) {
  return !params.allowed_token_ids.empty() || !params.bad_words.empty() || params.min_tokens > 0;
}

}  // namespace

EngineLoop::EngineLoop(const Options& options, Scheduler& scheduler, Runner& runner, BlockPool& pool,
                       EngineQueue& queue, EngineMetrics& metrics)
    : options_(options),
      scheduler_(scheduler),
      runner_(runner),
      pool_(pool),
      queue_(queue),
      metrics_(metrics.impl()),
      stats_line_(options.device, EngineClock::now()) {
  metrics_.total_blocks = pool.blocks();
  metrics_.free_blocks = pool.free_blocks();
}

int64_t EngineLoop::step_age_ms() const {
  const int64_t started = step_started_ms_.load();
  return started == 0 ? 0 : now_ms() - started;
}

void EngineLoop::run() {
  for (bool more = true; more;) {
    try {
      more = turn();
    } catch (const std::exception& error) {  // outside a step, so there is nobody in particular to blame
      log_failure("the engine thread failed", error);
      ++failed_in_a_row_;
      end_all(FinishReason::kError, kFailed);
      notify_and_sweep();
    }
  }
}

// Those left over from a turn that failed come first.
void EngineLoop::take_commands() {
  if (next_command_ == commands_.size()) {
    EngineClock::time_point deadline = EngineQueue::kDoNotWait;
    if (idle()) {
      const auto line_due = options_.log_stats ? stats_line_.due(metrics_.snapshot()) : std::nullopt;
      deadline = line_due.value_or(EngineQueue::kForever);
    }
    next_command_ = 0;
    queue_.take(commands_, deadline);
    if (deadline == EngineQueue::kForever) stats_line_.restart(EngineClock::now());
  }
  while (next_command_ < commands_.size()) {
    EngineCommand& command = commands_[next_command_++];
    if (command.kind == EngineCommand::Kind::kExit) {
      exiting_ = true;
    } else {
      handle(command);
    }
  }
}

bool EngineLoop::turn() {
  if (!exiting_) take_commands();
  if (exiting_) end_all(FinishReason::kAbort, "");
  if (!idle()) step();
  publish_gauges();
  notify_and_sweep();
  if (options_.log_stats) log_stats();
  return !exiting_;
}

void EngineLoop::log_stats() noexcept {
  try {
    if (const auto line = stats_line_.take(metrics_.snapshot(), EngineClock::now())) log_info(*line);
  } catch (const std::exception&) {  // no memory for a line is no reason to fail requests
  }
}

void EngineLoop::handle(EngineCommand& command) {
  if (command.kind == EngineCommand::Kind::kSubmit) return start(command.request);
  if (command.kind == EngineCommand::Kind::kResetPrefixCache) return pool_.reset_prefix_cache();
  if (command.kind == EngineCommand::Kind::kAbortAll) return end_all(FinishReason::kAbort, "");
  EngineRequest* const request = find(command.number);
  if (request == nullptr) return;  // ended meanwhile
  if (command.kind == EngineCommand::Kind::kCancel) return end_request(*request, FinishReason::kAbort, "");
  stop_choice(*request->sequences[static_cast<size_t>(command.choice)]);
}

// Whatever this request needs room for later, it gets here: if there is none, it alone is turned away.
void EngineLoop::start(std::unique_ptr<EngineRequest>& request) {
  EngineRequest& r = *request;
  try {
    if (requests_.size() == requests_.capacity()) requests_.reserve(2 * requests_.size() + 1);
    to_notify_.reserve(requests_.capacity());
    for (const auto& sequence : r.sequences) scheduler_.add(sequence.get());
  } catch (const std::exception& error) {
    log_failure("a request can't be started", error);
    for (const auto& sequence : r.sequences) {
      scheduler_.finish(sequence.get());
      r.client->push(last_event(sequence->choice, FinishReason::kError, kFailed));
    }
    r.client->notify();
    queue_.leave(static_cast<int64_t>(r.sequences.size()));
    return;
  }
  requests_.push_back(std::move(request));
  if (r.input.pooling != Pooling::kNone) return;
  metrics_.request_params_n.observe(r.input.params.n);
  metrics_.request_params_max_tokens.observe(static_cast<double>(*r.input.params.max_tokens));
}

EngineRequest* EngineLoop::find(uint64_t number) const {
  const auto it = std::find_if(requests_.begin(), requests_.end(), [&](const auto& r) { return r->number == number; });
  return it == requests_.end() ? nullptr : it->get();
}

void EngineLoop::stop_choice(Sequence& sequence) {
  if (sequence.status == SequenceStatus::kFinished) return;
  metrics_.observe_finish(sequence, FinishReason::kStop);
  take_out(sequence);
  left(*sequence.request);
}

void EngineLoop::end_request(EngineRequest& request, FinishReason reason, const char* error) {
  for (const auto& sequence : request.sequences) {
    if (sequence->status == SequenceStatus::kFinished) continue;
    finish(*sequence, last_event(sequence->choice, reason, error));
  }
}

void EngineLoop::end_all(FinishReason reason, const char* error) {
  for (const auto& request : requests_) end_request(*request, reason, error);
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

// A runner that runs ahead has one step under way while the next one is scheduled and staged.
void EngineLoop::step() {
  step_started_ms_ = now_ms();
  if (!runner_.may_run_ahead()) collect_steps(0);
  const bool submitted = submit_step();
  collect_steps(submitted && runner_.may_run_ahead() ? 1 : 0);
  step_started_ms_ = 0;
}

bool EngineLoop::submit_step() {
  const std::vector<ScheduledSequence>& step = scheduler_.schedule();
  if (step.empty()) return false;
  std::vector<Sequence*>& members = under_way_[static_cast<size_t>(steps_under_way_)];
  members.clear();
  try {
    note_started(step, EngineClock::now());
    members.reserve(step.size());
    runner_.submit(step);
    for (const ScheduledSequence& scheduled : step) members.push_back(scheduled.sequence);
    ++steps_under_way_;
    scheduler_.step_submitted();
  } catch (const std::exception& error) {
    log_failure("a step failed", error);
    ++failed_in_a_row_;
    while (!step.empty()) {  // finish() takes each one out of the step
      Sequence& sequence = *step.back().sequence;
      finish(sequence, last_event(sequence.choice, FinishReason::kError, kFailed));
    }
  }
  return steps_under_way_ > 0;
}

// Collects the oldest steps until `keep` are under way. Where one fails, its sequences end; the others go on.
void EngineLoop::collect_steps(int32_t keep) {
  for (; steps_under_way_ > keep; --steps_under_way_) {
    try {
      std::vector<Runner::Sampled>& sampled = runner_.collect();
      const EngineClock::time_point now = EngineClock::now();
      for (Runner::Sampled& one : sampled) {
        if (one.sequence != nullptr) hand_over(one, now);
      }
      failed_in_a_row_ = 0;
    } catch (const std::exception& error) {
      log_failure("a step failed", error);
      ++failed_in_a_row_;
      while (!under_way_[0].empty()) {  // finish() takes each one out
        Sequence& sequence = *under_way_[0].back();
        finish(sequence, last_event(sequence.choice, FinishReason::kError, kFailed));
      }
    }
    under_way_[0].clear();
    std::swap(under_way_[0], under_way_[1]);
  }
}

// What is still computed of a sequence that has ended is nobody's.
void EngineLoop::take_out(Sequence& sequence) {
  scheduler_.finish(&sequence);
  runner_.forget(sequence);
  for (std::vector<Sequence*>& members : under_way_) std::erase(members, &sequence);
}

void EngineLoop::hand_over(Runner::Sampled& sampled, EngineClock::time_point now) {
  Sequence& sequence = *sampled.sequence;
  EngineRequest& request = *sequence.request;
  const SamplingParams& params = request.input.params;
  if (request.input.pooling != Pooling::kNone) {
    const bool good = finish_pooling(request);
    return finish(sequence, last_event(0, good ? FinishReason::kStop : FinishReason::kError, good ? "" : kNoEmbedding));
  }
  if (*params.max_tokens == 0) {  // only the prompt was wanted
    return finish(sequence, last_event(sequence.choice, FinishReason::kLength, ""));
  }
  if (sampled.result.token < 0) {
    return finish(sequence, masks_tokens(params) ? refusal(sequence.choice, kNoTokenLeft)
                                                 : last_event(sequence.choice, FinishReason::kError, kNoToken));
  }
  metrics_.observe_token(sequence, now);
  if (sequence.output_len() == 0) sequence.first_token = now;
  sequence.last_token = now;
  scheduler_.token_known(sequence, sampled.result.token);
  GenerationEvent event;
  event.choice = sequence.choice;
  event.token = sampled.result.token;
  event.logprobs = std::move(sampled.result.logprobs);

  const auto begin = request.stop_ids.begin(), found = std::find(begin, request.stop_ids.end(), event.token);
  if (found != request.stop_ids.end() && sequence.output_len() > params.min_tokens) {
    event.finish = FinishReason::kStop;
    if (found - begin >= request.eos_ids) event.stop_token_id = event.token;  // EOS goes without saying
  } else if (sequence.output_len() >= *params.max_tokens || sequence.known() >= options_.max_model_len) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish != FinishReason::kNone) return finish(sequence, std::move(event));
  request.client->push(std::move(event));
  announce(request);
}

void EngineLoop::finish(Sequence& sequence, GenerationEvent event) {
  EngineRequest& request = *sequence.request;
  metrics_.observe_finish(sequence, event.finish);
  take_out(sequence);
  left(request);
  request.client->push(std::move(event));
  announce(request);
}

void EngineLoop::left(EngineRequest& request) {
  if (--request.unfinished == 0) ++ended_;
}

void EngineLoop::announce(EngineRequest& request) {
  if (request.announced) return;
  request.announced = true;
  to_notify_.push_back(&request);
}

void EngineLoop::publish_gauges() {
  metrics_.running = scheduler_.running();
  metrics_.waiting = scheduler_.waiting();
  metrics_.deferred = scheduler_.deferred();
  metrics_.free_blocks = pool_.free_blocks();
  metrics_.preemptions = scheduler_.preemptions();
  metrics_.prefix_cache_queries = scheduler_.prefix_cache_queries();
  metrics_.prefix_cache_hits = scheduler_.prefix_cache_hits();
}

// After the gauges: who hears that a request has ended finds it gone from them. Whoever waits for the last one to leave
// finds its client told.
void EngineLoop::notify_and_sweep() {
  for (EngineRequest* request : to_notify_) {
    try {
      request->client->notify();
    } catch (const std::exception& error) {
      log_failure("a client can't be told of its tokens", error);
    }
    request->announced = false;
  }
  to_notify_.clear();
  if (ended_ == 0) return;
  ended_ = 0;
  std::erase_if(requests_, [&](const std::unique_ptr<EngineRequest>& request) {
    if (request->unfinished > 0) return false;
    metrics_.observe_end(*request);
    queue_.leave(static_cast<int64_t>(request->sequences.size()));
    return true;
  });
}

}  // namespace quire
