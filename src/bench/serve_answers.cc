#include "bench/serve_answers.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "client/event_lines.h"
#include "client/http_client.h"

namespace quire {
namespace {

namespace od = simdjson::ondemand;

double seconds_between(LoadClient::Clock::time_point from, LoadClient::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// What a benchmark reads of one event or body.
struct Facts {
  bool has_choices = false;
  std::string_view text;  // of the first choice; valid until the next parse
  std::string error;
  int64_t prompt_tokens = -1, output_tokens = -1;
};

void add_string(od::value value, std::string_view& out) {
  if (value.type() == od::json_type::string) out = value.get_string();
}

void read_choice(od::object choice, Facts& facts) {
  for (auto field : choice) {
    const std::string_view key = field.unescaped_key();
    if (key == "text") {
      add_string(field.value(), facts.text);
    } else if (key == "delta" && field.value().type() == od::json_type::object) {
      for (auto part : field.value().get_object()) {
        const std::string_view name = part.unescaped_key();
        if (name == "content" || name == "reasoning" || name == "reasoning_content")
          add_string(part.value(), facts.text);
      }
    }
  }
}

void read_usage(od::object usage, Facts& facts) {
  for (auto field : usage) {
    const std::string_view key = field.unescaped_key();
    int64_t* const count = key == "prompt_tokens"       ? &facts.prompt_tokens
                           : key == "completion_tokens" ? &facts.output_tokens
                                                        : nullptr;
    if (count != nullptr && field.value().type() == od::json_type::number) *count = field.value().get_int64();
  }
}

}  // namespace

struct ServeAnswers::Json {
  od::parser parser;

  // `bytes` has EventLines::kPadding readable bytes behind it. Throws Error(kUnavailable) if it is no JSON object.
  Facts read(std::string_view bytes) {
    static_assert(EventLines::kPadding >= simdjson::SIMDJSON_PADDING);
    Facts facts;
    try {
      od::document document =
          parser.iterate(simdjson::padded_string_view(bytes.data(), bytes.size(), bytes.size() + EventLines::kPadding));
      for (auto field : document.get_object()) {
        const std::string_view key = field.unescaped_key();
        const od::json_type type = field.value().type();
        if (key == "choices" && type == od::json_type::array) {
          for (auto choice : field.value().get_array()) {
            if (!std::exchange(facts.has_choices, true)) read_choice(choice.get_object(), facts);
          }
        } else if (key == "usage" && type == od::json_type::object) {
          read_usage(field.value().get_object(), facts);
        } else if (key == "error" && type != od::json_type::null) {
          facts.error = error_message_of(
              fmt::format(R"({{"error":{}}})", std::string_view(simdjson::to_json_string(field.value()))));
        }
      }
    } catch (const simdjson::simdjson_error&) {
      throw Error(ErrorKind::kUnavailable, fmt::format("the answer is no JSON: {}", quote(bytes, 80)));
    }
    return facts;
  }
};

struct ServeAnswers::Reading {
  EventLines lines;
  std::string whole;  // of a refusal, or of an answer that is no stream
  Time start, last;
  int status = 0;
  std::string reason;
  bool first = true;
};

ServeAnswers::ServeAnswers(AnswerShape shape, size_t requests)
    : shape_(shape), outcomes_(requests), readings_(requests), json_(std::make_unique<Json>()) {}

ServeAnswers::~ServeAnswers() = default;

void ServeAnswers::begin(size_t index, Time due, Time now) {
  if (!std::exchange(begun_, true)) origin_ = due;
  if (spare_.empty()) {
    readings_[index] = std::make_unique<Reading>();
  } else {
    readings_[index] = std::move(spare_.back());
    spare_.pop_back();
  }
  Reading& reading = *readings_[index];
  reading.lines.reset();
  reading.whole.clear();
  reading.status = 0;
  reading.first = true;
  reading.start = reading.last = now;
  outcomes_[index].start = seconds_between(origin_, now);
  outcomes_[index].queue_time = seconds_between(due, now);
}

void ServeAnswers::answer(size_t index, int status, const std::string& reason) {
  readings_[index]->status = status;
  readings_[index]->reason = reason;
}

void ServeAnswers::body(size_t index, std::string_view bytes, Time now) {
  Reading& reading = *readings_[index];
  if (reading.status != 200 || shape_ == AnswerShape::kWhole) {
    constexpr size_t kMaxRefusal = 4096, kMaxWhole = size_t{64} << 20;
    const size_t most = reading.status == 200 ? kMaxWhole : kMaxRefusal;
    reading.whole += bytes.substr(0, most - std::min(most, reading.whole.size()));
    reading.last = now;
    return;
  }
  reading.lines.feed(bytes);
  while (const auto data = reading.lines.next()) take_event(reading, outcomes_[index], *data, now);
}

void ServeAnswers::take_event(Reading& reading, RequestOutcome& outcome, std::string_view data, Time now) {
  if (data == "[DONE]") return;
  const Facts facts = json_->read(data);
  if (!facts.error.empty()) throw Error(ErrorKind::kUnavailable, facts.error);
  if (facts.prompt_tokens >= 0) outcome.prompt_tokens = facts.prompt_tokens;
  if (facts.output_tokens >= 0) outcome.output_tokens = facts.output_tokens;
  if (!facts.has_choices) return;
  if (std::exchange(reading.first, false)) {
    outcome.ttft = seconds_between(reading.start, now);
  } else {
    outcome.itls.push_back(seconds_between(reading.last, now));
  }
  ++pieces_;
  reading.last = now;
  outcome.text += facts.text;
}

void ServeAnswers::take_whole(Reading& reading, RequestOutcome& outcome) {
  const size_t size = reading.whole.size();
  reading.whole.append(EventLines::kPadding, ' ');
  const Facts facts = json_->read(std::string_view(reading.whole).substr(0, size));
  if (!facts.error.empty()) throw Error(ErrorKind::kUnavailable, facts.error);
  outcome.prompt_tokens = facts.prompt_tokens;
  outcome.output_tokens = facts.output_tokens;
  outcome.ttft = seconds_between(reading.start, reading.last);
}

void ServeAnswers::end(size_t index, Time, const std::string& error) {
  RequestOutcome& outcome = outcomes_[index];
  Reading& reading = *readings_[index];
  ++ended_;
  try {
    outcome.error = error;
    if (error.empty() && reading.status != 200) {
      outcome.error = fmt::format("{} {}: {}", reading.status, reading.reason, error_message_of(reading.whole));
    } else if (error.empty() && shape_ == AnswerShape::kWhole) {
      take_whole(reading, outcome);
    } else if (error.empty() && reading.first) {
      outcome.error = "the answer has no choices";
    }
  } catch (const Error& failure) {
    outcome.error = failure.what();
  }
  outcome.success = outcome.error.empty();
  outcome.latency = seconds_between(reading.start, reading.last);
  spare_.push_back(std::move(readings_[index]));
}

}  // namespace quire
