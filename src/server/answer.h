#pragma once
// What a request's answer is made of, for both endpoints: the state of every prompt and choice, and the pieces of JSON
// they share.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generation.h"
#include "server/request_fields.h"
#include "text/detokenizer.h"

namespace quire {

struct ChoiceState {
  explicit ChoiceState(Detokenizer text) : detokenizer(std::move(text)) {}

  Detokenizer detokenizer;
  int32_t index = 0;  // in the answer
  std::vector<int32_t> ids;
  std::vector<TokenLogprobs> logprobs;  // one for each id, if asked for
  FinishReason finish = FinishReason::kNone;
  std::optional<std::string> stop_string;
  std::optional<int32_t> stop_token;

  // Streaming: how many ids were sent, and how many characters of tokens (for text_offset).
  size_t sent_ids = 0;
  size_t sent_characters = 0;
  bool begun = false, closed = false;  // the first and the last event were sent
};

struct PromptState {
  std::shared_ptr<Generation> generation;
  std::vector<int32_t> ids;
  std::string text;  // completions with echo
  std::vector<ChoiceState> choices;
};

// What every format of an answer needs to know of the request.
struct AnswerContext {
  std::string id, model;
  int64_t created = 0;
  GenerationFields fields;
  const Tokenizer* tokenizer = nullptr;
  bool prompt_tokens_details = false;
  std::string role, echo;  // chat
};

// The JSON of one endpoint.
class AnswerFormat {
 public:
  explicit AnswerFormat(AnswerContext context) : context_(std::move(context)) {}
  virtual ~AnswerFormat() = default;
  AnswerFormat(const AnswerFormat&) = delete;
  AnswerFormat& operator=(const AnswerFormat&) = delete;

  const AnswerContext& context() const { return context_; }

  // Non-streaming: the whole body.
  virtual std::string whole(const std::vector<PromptState>& prompts) const = 0;
  // Streaming: appends the events that open a choice, and those for ids[sent_ids..) with `text`; `usage` is
  // ,"usage":{..} or empty.
  virtual void open(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view usage) const = 0;
  virtual void delta(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view text,
                     std::string_view usage) const = 0;
  // The last event, with no choices.
  virtual void usage_chunk(std::string& out, std::string_view usage) const = 0;

 private:
  AnswerContext context_;
};

// "stop", "length" or "abort" with quotes, or null.
std::string_view finish_json(FinishReason reason);
// The matched stop string or token id, or null.
std::string stop_reason_json(const ChoiceState& choice);
std::string ids_json(const std::vector<int32_t>& ids, size_t from = 0);
// {"prompt_tokens":..}; choices and prompts as far as they have come.
std::string usage_json(const std::vector<PromptState>& prompts, const AnswerContext& context);
// null, or a list with null for the first token and {"id":{"logprob","rank","decoded_token"}} for each other one.
std::string prompt_logprobs_json(const PromptState& prompt, const AnswerContext& context);

// The token's text by itself, valid UTF-8; "token_id:N" if the request asks for it.
std::string token_text(int32_t id, const AnswerContext& context);
size_t count_characters(std::string_view utf8);
void append_logprob(std::string& out, float value);  // at least -9999

// One SSE event around a JSON object.
void append_event(std::string& out, std::string_view json);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

}  // namespace quire
