#include "server/openai_completions.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "server/api.h"
#include "server/json_body.h"
#include "server/json_errors.h"

namespace quire {

std::string CompletionAnswer::logprobs_json(const PromptState& prompt, const ChoiceState& choice, bool with_prompt,
                                            size_t from, size_t& characters) const {
  std::string offsets, values, tokens, tops;
  const auto add = [&](int32_t id, const TokenLogprobs* position) {
    const std::string_view comma = tokens.empty() ? "" : ",";
    const std::string text = token_text(id, context());
    fmt::format_to(std::back_inserter(offsets), "{}{}", comma, characters);
    characters += count_characters(text);
    tokens += comma;
    append_json_string(tokens, text);
    values += comma;
    tops += comma;
    if (position == nullptr) {
      values += "null";
      tops += "null";
      return;
    }
    append_logprob(values, position->token.logprob);
    // Two ids may have one text; the better one stands for it.
    std::set<std::string> seen;
    const auto entry = [&](const TokenLogprobs::Entry& e) {
      std::string name = token_text(e.id, context());
      if (seen.contains(name)) return;
      if (!seen.empty()) tops += ',';
      append_json_string(tops, name);
      tops += ':';
      append_logprob(tops, e.logprob);
      seen.insert(std::move(name));
    };
    tops += '{';
    for (const TokenLogprobs::Entry& e : position->top) entry(e);
    entry(position->token);
    tops += '}';
  };
  if (with_prompt) {
    const auto& positions = prompt.generation->prompt_logprobs();
    for (size_t i = 0; i < prompt.ids.size(); ++i) {
      add(prompt.ids[i], i < positions.size() && positions[i] ? &*positions[i] : nullptr);
    }
  }
  for (size_t i = from; i < choice.ids.size(); ++i)
    add(choice.ids[i], i < choice.logprobs.size() ? &choice.logprobs[i] : nullptr);
  return fmt::format(R"({{"text_offset":[{}],"token_logprobs":[{}],"tokens":[{}],"top_logprobs":[{}]}})", offsets,
                     values, tokens, tops);
}

std::string CompletionAnswer::whole(const std::vector<PromptState>& prompts) const {
  const GenerationFields& fields = context().fields;
  std::string out = head(kObject);
  bool first = true;
  for (const PromptState& prompt : prompts) {
    const std::string prompt_logprobs = prompt_logprobs_json(prompt, context());
    for (const ChoiceState& choice : prompt.choices) {
      size_t characters = 0;
      fmt::format_to(std::back_inserter(out), R"({}{{"index":{},"text":)", std::exchange(first, false) ? "" : ",",
                     choice.index);
      append_json_string(out, fields.echo ? prompt.text + choice.detokenizer.text() : choice.detokenizer.text());
      out += ",\"logprobs\":";
      out += fields.logprobs ? logprobs_json(prompt, choice, fields.echo, 0, characters) : "null";
      fmt::format_to(
          std::back_inserter(out),
          R"(,"finish_reason":{},"stop_reason":{},"token_ids":{},"prompt_logprobs":{},"prompt_token_ids":{}}})",
          finish_json(choice.finish), stop_reason_json(choice), fields.return_token_ids ? ids_json(choice.ids) : "null",
          prompt_logprobs, fields.return_token_ids ? ids_json(prompt.ids) : "null");
    }
  }
  fmt::format_to(std::back_inserter(out),
                 R"(],"service_tier":null,"system_fingerprint":{},"usage":{},"kv_transfer_params":null}})",
                 fingerprint_json(), usage_json(prompts, context()));
  return out;
}

void CompletionAnswer::open(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view usage) {
  const GenerationFields& fields = context().fields;
  if (!fields.echo) return;
  begin_chunk(out);
  fmt::format_to(
      std::back_inserter(out), R"({{"index":{},"text":{},"logprobs":{},"finish_reason":null,"stop_reason":null}})",
      choice.index, json_string(prompt.text),
      fields.logprobs ? logprobs_json(prompt, choice, true, choice.ids.size(), choice.sent_characters) : "null");
  end_chunk(out, usage, false);
}

void CompletionAnswer::delta(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view text,
                             std::string_view usage) {
  const GenerationFields& fields = context().fields;
  begin_chunk(out);
  fmt::format_to(std::back_inserter(out), R"({{"index":{},"text":)", choice.index);
  append_json_string(out, text);
  out += ",\"logprobs\":";
  out += fields.logprobs ? logprobs_json(prompt, choice, false, choice.sent_ids, choice.sent_characters) : "null";
  out += ",\"finish_reason\":";
  out += finish_json(choice.finish);
  out += ",\"stop_reason\":";
  out += stop_reason_json(choice);
  if (fields.return_token_ids) {
    if (choice.sent_ids == 0) out += ",\"prompt_token_ids\":" + ids_json(prompt.ids);
    out += ",\"token_ids\":" + ids_json(choice.ids, choice.sent_ids);
  }
  out += '}';
  end_chunk(out, usage, choice.finish != FinishReason::kNone && !fields.include_usage);
}

void handle_completion(Api& api, const std::shared_ptr<HttpExchange>& exchange) {
  CompletionFields fields = [&] {
    const std::string body = take_json_body(*exchange);
    const JsonPointer json = keep_json(parse_json_object(body));
    return read_completion_fields(*json, api.engine.generation_config(), api.config);
  }();
  api.check_model(fields.model);
  const Tokenizer& tokenizer = api.engine.tokenizer();
  std::vector<GenerationSession::Prompt> prompts;
  prompts.reserve(fields.prompts.size());
  for (CompletionPrompt& given : fields.prompts) {
    GenerationSession::Prompt prompt;
    if (given.is_text) {
      prompt.ids = api.encode(given.text, fields.add_special_tokens, fields.truncate_prompt_tokens.has_value());
      if (fields.echo) prompt.text = std::move(given.text);
    } else {
      prompt.ids = std::move(given.ids);
      if (fields.echo) prompt.text = tokenizer.decode(prompt.ids, false);
    }
    const size_t untruncated = prompt.ids.size();
    api.truncate(prompt.ids, fields);
    if (fields.echo && prompt.ids.size() < untruncated) prompt.text = tokenizer.decode(prompt.ids, false);
    prompts.push_back(std::move(prompt));
  }
  AnswerContext context = api.make_context(exchange->request(), std::move(fields), "cmpl-");
  api.run(exchange, std::make_unique<CompletionAnswer>(std::move(context)), std::move(prompts));
}

}  // namespace quire
