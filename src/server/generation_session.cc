#include "server/generation_session.h"

#include <new>
#include <utility>

#include "server/json_errors.h"
#include "server/log_failure.h"

namespace quire {

void GenerationSession::start(const std::shared_ptr<HttpExchange>& exchange, std::unique_ptr<AnswerFormat> format,
                              std::vector<Prompt> prompts, HttpHeaders headers, const Submit& submit,
                              std::shared_ptr<void> while_running) {
  const auto session =
      std::make_shared<GenerationSession>(exchange, std::move(format), std::move(headers), std::move(while_running));
  session->submit_all(std::move(prompts), submit);
  try {
    session->begin();
  } catch (const std::bad_alloc&) {  // part of the answer may be on its way
    session->give_up(ErrorKind::kUnavailable, "out of memory for this request");
  }
}

void GenerationSession::begin() {
  if (format_->context().fields.stream) {
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = headers_;
    head.headers.emplace_back("cache-control", "no-cache");
    head.headers.emplace_back("x-accel-buffering", "no");
    exchange_->begin_stream(std::move(head));
    format_->begin(out_, prompts_);
    flush();
  }
  // The connection holds the session by this callback until the answer ends; the engine's listener does not hold it.
  exchange_->on_disconnect([session = shared_from_this()] { session->cancel(); });
  exchange_->post([weak = weak_from_this()] {  // after the head of a stream
    if (const auto alive = weak.lock()) alive->listen();
  });
}

void GenerationSession::listen() {
  try {
    const std::function<void()> waker = exchange_->make_waker([weak = weak_from_this()] {
      if (const auto alive = weak.lock()) alive->pump();
    });
    for (const PromptState& prompt : prompts_) prompt.generation->set_listener(waker);
  } catch (const std::bad_alloc&) {
    give_up(ErrorKind::kUnavailable, "out of memory for this request");
  }
}

GenerationSession::GenerationSession(std::shared_ptr<HttpExchange> exchange, std::unique_ptr<AnswerFormat> format,
                                     HttpHeaders headers, std::shared_ptr<void> while_running)
    : exchange_(std::move(exchange)),
      format_(std::move(format)),
      headers_(std::move(headers)),
      while_running_(std::move(while_running)) {}

void GenerationSession::submit_all(std::vector<Prompt> prompts, const Submit& submit) {
  const AnswerContext& context = format_->context();
  const SamplingParams& params = context.fields.params;
  prompts_.reserve(prompts.size());
  int32_t index = 0;
  try {
    for (size_t i = 0; i < prompts.size(); ++i) {
      GenerateRequest request;
      request.id = prompts.size() == 1 ? context.id : context.id + "-" + std::to_string(i);
      request.prompt_ids = prompts[i].ids;
      request.params = params;
      request.priority = context.fields.priority;
      request.cache_salt = context.fields.cache_salt;
      PromptState state;
      state.generation = submit(std::move(request));
      state.ids = std::move(prompts[i].ids);
      state.text = std::move(prompts[i].text);
      for (int32_t n = 0; n < params.n; ++n) {
        Detokenizer::Options options;
        options.skip_special_tokens = params.skip_special_tokens;
        options.stop = params.stop;
        options.include_stop_string = params.include_stop_str_in_output;
        options.min_tokens = params.min_tokens;
        ChoiceState& choice = state.choices.emplace_back(Detokenizer(*context.tokenizer, std::move(options)));
        choice.index = index++;
      }
      prompts_.push_back(std::move(state));
    }
  } catch (...) {
    cancel();
    throw;
  }
  open_choices_ = static_cast<size_t>(index);
}

void GenerationSession::cancel() {
  ended_ = true;
  for (const PromptState& prompt : prompts_) prompt.generation->cancel();
}

void GenerationSession::pump() {
  if (ended_) return;
  try {
    take_events();
  } catch (const std::bad_alloc&) {
    give_up(ErrorKind::kUnavailable, "out of memory for this request");
  } catch (const std::exception& error) {
    log_failure("a request", error);
    give_up(ErrorKind::kInternal, "internal error");
  }
}

// If there is no memory even for the error, the exchange is let go, which ends it.
void GenerationSession::give_up(ErrorKind kind, const char* message) noexcept {
  try {
    out_.clear();
    fail(Error(kind, message));
  } catch (const std::exception&) {
    ended_ = true;
    exchange_ = nullptr;
  }
}

void GenerationSession::take_events() {
  const bool stream = format_->context().fields.stream;
  for (PromptState& prompt : prompts_) {
    events_.clear();
    prompt.generation->poll(events_);
    if (events_.empty()) continue;
    for (GenerationEvent& event : events_) {
      if (!take(prompt, std::move(event))) return;
    }
    if (!stream) continue;
    for (ChoiceState& choice : prompt.choices) stream_news(prompt, choice);
  }
  flush();
  if (open_choices_ == 0) finish();
}

void GenerationSession::flush() {
  if (out_.empty()) return;
  exchange_->write(out_);
  out_.clear();
}

bool GenerationSession::take(PromptState& prompt, GenerationEvent event) {
  if (event.choice < 0 || static_cast<size_t>(event.choice) >= prompt.choices.size()) return true;
  ChoiceState& choice = prompt.choices[static_cast<size_t>(event.choice)];
  if (choice.finish != FinishReason::kNone) return true;  // computed past a stop string
  if (event.finish == FinishReason::kError) {
    fail(Error(event.error_kind, event.error.empty() ? "the request failed in the engine" : event.error));
    return false;
  }
  if (event.finish == FinishReason::kAbort) {
    fail(Error(ErrorKind::kUnavailable, "the request was aborted: the server is shutting down"));
    return false;
  }
  const SamplingParams& params = format_->context().fields.params;
  if (event.token >= 0 && params.max_tokens != 0) {
    choice.ids.push_back(event.token);
    if (event.logprobs && format_->context().fields.logprobs) choice.logprobs.push_back(std::move(*event.logprobs));
    const bool hidden = event.finish == FinishReason::kStop && !params.include_stop_str_in_output;
    if (!hidden) {
      if (const auto stop = choice.detokenizer.push(event.token)) {
        choice.stop_string = params.stop[*stop];
        if (event.finish == FinishReason::kNone) prompt.generation->stop_choice(event.choice);
        end_choice(choice, FinishReason::kStop);
        return true;
      }
    }
  }
  if (event.finish != FinishReason::kNone) {
    choice.stop_token = event.stop_token_id;
    end_choice(choice, event.finish);
  }
  return true;
}

void GenerationSession::end_choice(ChoiceState& choice, FinishReason finish) {
  choice.finish = finish;
  choice.detokenizer.finish();
  --open_choices_;
}

void GenerationSession::stream_news(PromptState& prompt, ChoiceState& choice) {
  const bool news = choice.sent_ids < choice.ids.size() || (choice.finish != FinishReason::kNone && !choice.closed);
  if (!news && choice.begun) return;
  const std::string usage = format_->context().fields.continuous_usage_stats
                                ? ",\"usage\":" + usage_json(prompts_, format_->context())
                                : std::string();
  if (!choice.begun) {
    choice.begun = true;
    format_->open(out_, prompt, choice, usage);
  }
  if (!news) return;
  format_->delta(out_, prompt, choice, choice.detokenizer.take(), usage);
  choice.sent_ids = choice.ids.size();
  choice.closed = choice.finish != FinishReason::kNone;
}

void GenerationSession::finish() {
  ended_ = true;
  if (format_->context().fields.stream) {
    format_->end(out_, prompts_);
    flush();
    exchange_->end_stream();
    return;
  }
  HttpResponse response;
  response.content_type = "application/json";
  response.headers = headers_;
  response.body = format_->whole(prompts_);
  exchange_->respond(std::move(response));
}

void GenerationSession::fail(const Error& error) {
  cancel();
  if (!format_->context().fields.stream) {
    HttpResponse response = format_->failure(error);
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    exchange_->respond(std::move(response));
    return;
  }
  format_->failure_event(out_, error);
  flush();
  exchange_->end_stream();
}

}  // namespace quire
