#pragma once
// What an answer is made of, whatever the endpoint: the state of every prompt and choice, and the pieces of JSON that
// several formats share.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/generation.h"
#include "server/http_types.h"
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
  std::string text;  // completions with echo, chat with return_prompt_text
  std::vector<ChoiceState> choices;
};

// What every format of an answer needs to know of the request.
struct AnswerContext {
  std::string id, model;
  int64_t created = 0;
  GenerationFields fields;
  const Tokenizer* tokenizer = nullptr;
  bool prompt_tokens_details = false;
  std::string fingerprint;  // of the program and its settings; may be empty
  std::string role, echo;   // chat
};

// The JSON of one endpoint.
class AnswerFormat {
 public:
  explicit AnswerFormat(AnswerContext context) : context_(std::move(context)) {}
  virtual ~AnswerFormat() = default;
  AnswerFormat(const AnswerFormat&) = delete;
  AnswerFormat& operator=(const AnswerFormat&) = delete;

  const AnswerContext& context() const { return context_; }

  // Non-streaming: the whole body, or what is answered if the engine fails.
  virtual std::string whole(const std::vector<PromptState>& prompts) const = 0;
  virtual HttpResponse failure(const Error& error) const;

  // Streaming. Each appends events to `out`: those before any token, those that open a choice, those for
  // ids[sent_ids..) with `text` (the last one also closes the choice), those at the end of all. `usage` is
  // ,"usage":{..} or empty.
  virtual void begin(std::string& /*out*/, const std::vector<PromptState>& /*prompts*/) {}
  virtual void open(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view usage) = 0;
  virtual void delta(std::string& out, const PromptState& prompt, ChoiceState& choice, std::string_view text,
                     std::string_view usage) = 0;
  virtual void end(std::string& out, const std::vector<PromptState>& prompts) = 0;
  // Instead of what is left of them: the stream ends here.
  virtual void failure_event(std::string& out, const Error& error) = 0;

 private:
  AnswerContext context_;
};

// Streams of /v1/completions and /v1/chat/completions: chunks of one shape, then perhaps one with no choice but usage,
// then [DONE].
class ChunkedAnswer : public AnswerFormat {
 public:
  // object: what each chunk calls itself.
  ChunkedAnswer(AnswerContext context, std::string_view object);
  void end(std::string& out, const std::vector<PromptState>& prompts) override;
  void failure_event(std::string& out, const Error& error) override;

 protected:
  // An event up to its list of choices, and from there on. The last chunk of a choice has the fingerprint, unless one
  // with usage follows.
  void begin_chunk(std::string& out) const { out += chunk_head_; }
  void end_chunk(std::string& out, std::string_view usage, bool last) const;
  // {"id":..,"object":..,"created":..,"model":..,"choices":[
  std::string head(std::string_view object) const;
  std::string fingerprint_json() const;  // or null

 private:
  std::string chunk_head_;
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

// [{"token","logprob","bytes","top_logprobs":[..]}] of ids[from..), as chat and responses have it.
std::string token_logprobs_json(const ChoiceState& choice, size_t from, const AnswerContext& context);

// The token's text by itself, valid UTF-8; "token_id:N" if the request asks for it.
std::string token_text(int32_t id, const AnswerContext& context);
size_t count_characters(std::string_view utf8);
void append_logprob(std::string& out, float value);  // at least -9999

// One SSE event around a JSON object; with a name if it has one.
void append_event(std::string& out, std::string_view json);
void append_event(std::string& out, std::string_view name, std::string_view json);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

}  // namespace quire
