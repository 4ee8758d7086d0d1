#pragma once
// From a conversation to the model's prompt: which of the model's templates is taken, what it is given, and what is
// done to the messages before. The rules are those of transformers' apply_chat_template; the shape of content is
// vLLM's.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"

namespace quire {

// How messages' content reaches the template. kAuto: as parts if the template loops over them, else as a string.
enum class ContentFormat { kAuto, kString, kOpenAi };
ContentFormat content_format_of(std::string_view name);  // "string", "openai"; any other: kAuto

class ChatFormat {
 public:
  using Templates = std::map<std::string, ChatTemplate, std::less<>>;  // by name: "default", "tool_use", ...

  ChatFormat() = default;  // a model without templates
  ChatFormat(Templates templates, std::vector<SpecialToken> special_tokens);

  bool empty() const { return templates_.empty(); }
  bool has(std::string_view name) const { return templates_.find(name) != templates_.end(); }
  const Templates& templates() const { return templates_; }
  const std::vector<SpecialToken>& special_tokens() const { return special_tokens_; }

  struct Conversation {
    const nlohmann::ordered_json* messages = nullptr;  // array of objects, not empty
    const nlohmann::ordered_json* tools = nullptr;     // null or array
    const nlohmann::ordered_json* values = nullptr;    // null or object: documents and other variables
    bool add_generation_prompt = true;
    bool continue_final_message = false;  // the prompt ends where the last message's content does
    ContentFormat content_format = ContentFormat::kAuto;
    std::string_view chat_template;  // a name or Jinja; empty: "tool_use" if there are tools and such a one, else
                                     // "default"
    const std::tm* now = nullptr;    // local time; null: the clock
  };
  // Throws Error(kInvalidArgument).
  std::string render(const Conversation& conversation) const;

 private:
  const ChatTemplate& choose(const Conversation& conversation) const;

  Templates templates_;
  std::vector<SpecialToken> special_tokens_;
};

// The special tokens that a folder's tokenizer_config.json or else special_tokens_map.json names; either may be empty.
std::vector<SpecialToken> read_special_tokens(std::string_view tokenizer_config_json,
                                              std::string_view special_tokens_map_json);

}  // namespace quire
