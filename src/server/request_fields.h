#pragma once
// The fields of a request, typed. One reader for all endpoints: the same field has the same rules in each. Ranges of
// sampling values are the engine's to check (engine/admission.h); shapes, types and what this server has no feature for
// are refused here.
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "sample/sampling_params.h"
#include "server/config.h"
#include "server/json_body.h"

namespace quire {

struct GenerationFields {
  std::string model;  // empty = the served one
  SamplingParams params;
  std::vector<std::string> bad_words;
  bool stream = false, include_usage = false, continuous_usage_stats = false;
  bool echo = false;
  bool logprobs = false;  // the answer has log-probabilities of generated tokens
  bool return_prompt_logprobs = false;
  bool return_token_ids = false, return_tokens_as_token_ids = false;
  bool return_prompt_text = false;  // chat
  bool add_special_tokens = false;
  std::optional<int64_t> truncate_prompt_tokens;
  bool truncate_from_left = true;
  int64_t priority = 0;
  std::string cache_salt, request_id;
};

struct CompletionPrompt {
  std::string text;
  std::vector<int32_t> ids;
  bool is_text = true;
};

struct CompletionFields : GenerationFields {
  std::vector<CompletionPrompt> prompts;
};

struct ChatFields : GenerationFields {
  JsonPointer messages;         // content is a string or a list of text parts
  JsonPointer tools;            // null if none
  JsonPointer template_values;  // object: kwargs, documents
  std::string chat_template;    // empty = the model's
  bool add_generation_prompt = true, continue_final_message = false;

  ChatFields();
  ~ChatFields();
  ChatFields(ChatFields&&) noexcept;
  ChatFields& operator=(ChatFields&&) noexcept;
};

// Throw Error or ApiError (400) naming the field.
CompletionFields read_completion_fields(const nlohmann::ordered_json& body, const GenerationConfig& defaults,
                                        const ServerConfig& config);
ChatFields read_chat_fields(const nlohmann::ordered_json& body, const GenerationConfig& defaults,
                            const ServerConfig& config);
// What every endpoint that generates reads: model, stream, sampling, and how the engine is to treat the request. Not
// max_tokens and stop, which have other names in some.
void read_sampling_fields(const nlohmann::ordered_json& body, const GenerationConfig& defaults,
                          const ServerConfig& config, GenerationFields& out);
// A count of tokens under one of its names.
std::optional<int64_t> read_max_tokens(const FieldReader& fields, const char* name, int64_t least = 1);
// `field` of completions or embeddings: a text, texts, token ids or lists of them, at most so many.
std::vector<CompletionPrompt> read_prompts(const nlohmann::ordered_json& body, const char* field, size_t most);
// Empty if there is none.
std::string read_cache_salt(const nlohmann::ordered_json& body);
// The part of a chat request that its template reads; /tokenize has it too.
void read_conversation(const nlohmann::ordered_json& body, const ServerConfig& config, ChatFields& fields);

}  // namespace quire
