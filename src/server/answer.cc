#include "server/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "server/json_errors.h"
#include "text/unicode.h"

namespace quire {

HttpResponse AnswerFormat::failure(const Error& error) const { return error_response(error); }

ChunkedAnswer::ChunkedAnswer(AnswerContext context, std::string_view object)
    : AnswerFormat(std::move(context)), chunk_head_("data: " + head(object)) {}

std::string ChunkedAnswer::head(std::string_view object) const {
  return fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"choices":[)", json_string(context().id),
                     object, context().created, json_string(context().model));
}

std::string ChunkedAnswer::fingerprint_json() const {
  return context().fingerprint.empty() ? "null" : json_string(context().fingerprint);
}

void ChunkedAnswer::end_chunk(std::string& out, std::string_view usage, bool last) const {
  out += ']';
  if (last && !context().fingerprint.empty()) {
    out += ",\"system_fingerprint\":";
    append_json_string(out, context().fingerprint);
  }
  out += usage;
  out += "}\n\n";
}

void ChunkedAnswer::end(std::string& out, const std::vector<PromptState>& prompts) {
  if (context().fields.include_usage) {
    begin_chunk(out);
    end_chunk(out, ",\"usage\":" + usage_json(prompts, context()), true);
  }
  out += kDoneEvent;
}

void ChunkedAnswer::failure_event(std::string& out, const Error& error) {
  append_event(out, error_json(error));
  out += kDoneEvent;
}

std::string_view finish_json(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "\"stop\"";
    case FinishReason::kLength:
      return "\"length\"";
    case FinishReason::kAbort:
      return "\"abort\"";
    case FinishReason::kError:
    case FinishReason::kNone:
      break;
  }
  return "null";
}

std::string stop_reason_json(const ChoiceState& choice) {
  if (choice.stop_string) return json_string(*choice.stop_string);
  if (choice.stop_token) return std::to_string(*choice.stop_token);
  return "null";
}

std::string ids_json(const std::vector<int32_t>& ids, size_t from) {
  std::string out = "[";
  for (size_t i = from; i < ids.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i > from ? "," : "", ids[i]);
  }
  out += ']';
  return out;
}

std::string usage_json(const std::vector<PromptState>& prompts, const AnswerContext& context) {
  size_t prompt_tokens = 0, completion_tokens = 0;
  int64_t cached = 0;
  for (const PromptState& prompt : prompts) {
    prompt_tokens += prompt.ids.size();
    cached += prompt.generation->cached_tokens();
    for (const ChoiceState& choice : prompt.choices) completion_tokens += choice.ids.size();
  }
  return fmt::format(
      R"({{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{},"prompt_tokens_details":{},"completion_tokens_details":null}})",
      prompt_tokens, prompt_tokens + completion_tokens, completion_tokens,
      context.prompt_tokens_details ? fmt::format(R"({{"cached_tokens":{}}})", cached) : "null");
}

std::string token_logprobs_json(const ChoiceState& choice, size_t from, const AnswerContext& context) {
  std::string out = "[";
  const auto entry = [&](const TokenLogprobs::Entry& e) {
    out += "{\"token\":";
    append_json_string(out, token_text(e.id, context));
    out += ",\"logprob\":";
    append_logprob(out, e.logprob);
    out += ",\"bytes\":[";  // the raw ones, also of a token that is a piece of a character
    bool first = true;
    for (const char c : context.tokenizer->token_bytes(e.id)) {
      fmt::format_to(std::back_inserter(out), "{}{}", std::exchange(first, false) ? "" : ",",
                     static_cast<unsigned char>(c));
    }
    out += ']';
  };
  for (size_t i = from; i < choice.logprobs.size(); ++i) {
    const TokenLogprobs& position = choice.logprobs[i];
    if (i > from) out += ',';
    entry(position.token);
    out += ",\"top_logprobs\":[";
    for (size_t k = 0; k < position.top.size(); ++k) {
      if (k > 0) out += ',';
      entry(position.top[k]);
      out += '}';
    }
    out += "]}";
  }
  out += ']';
  return out;
}

std::string token_text(int32_t id, const AnswerContext& context) {
  if (context.fields.return_tokens_as_token_ids) return fmt::format("token_id:{}", id);
  std::string out;
  append_lossy_utf8(out, context.tokenizer->token_bytes(id));
  return out;
}

size_t count_characters(std::string_view utf8) {
  return static_cast<size_t>(
      std::ranges::count_if(utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void append_logprob(std::string& out, float value) {
  const float finite = std::isnan(value) ? -9999.0f : std::clamp(value, -9999.0f, 0.0f);
  fmt::format_to(std::back_inserter(out), "{}", finite == 0 ? 0.0f : finite);
}

std::string prompt_logprobs_json(const PromptState& prompt, const AnswerContext& context) {
  if (!context.fields.return_prompt_logprobs) return "null";
  std::string out = "[";
  const auto entry = [&](const TokenLogprobs::Entry& e) {
    fmt::format_to(std::back_inserter(out), R"("{}":{{"logprob":)", e.id);
    append_logprob(out, e.logprob);
    fmt::format_to(std::back_inserter(out), R"(,"rank":{},"decoded_token":)", e.rank);
    append_json_string(out, token_text(e.id, context));
    out += '}';
  };
  bool first = true;
  for (const auto& position : prompt.generation->prompt_logprobs()) {
    if (!std::exchange(first, false)) out += ',';
    if (!position) {
      out += "null";
      continue;
    }
    out += '{';
    entry(position->token);
    for (const TokenLogprobs::Entry& e : position->top) {
      if (e.id == position->token.id) continue;
      out += ',';
      entry(e);
    }
    out += '}';
  }
  out += ']';
  return out;
}

void append_event(std::string& out, std::string_view json) {
  out += "data: ";
  out += json;
  out += "\n\n";
}

void append_event(std::string& out, std::string_view name, std::string_view json) {
  out += "event: ";
  out += name;
  out += '\n';
  append_event(out, json);
}

}  // namespace quire
