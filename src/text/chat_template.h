#pragma once
// Renders a conversation with a model's Jinja chat template, in the environment that Hugging Face transformers gives it
// (trim_blocks, lstrip_blocks, loop controls, raise_exception, strftime_now, its own tojson).
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json_fwd.hpp>

namespace quire {

// The variable that a template finds a special token under ("bos_token"), and the token.
using SpecialToken = std::pair<std::string, std::string>;

class ChatTemplate {
 public:
  // Throws Error(kInvalidArgument) with line and reason.
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  struct Input {
    const nlohmann::ordered_json* messages = nullptr;  // array of {role, content, ...}
    const nlohmann::ordered_json* tools = nullptr;     // null or array
    const nlohmann::ordered_json* extra = nullptr;     // null or object: chat_template_kwargs, documents; wins over
                                                       // special tokens, not over the others
    bool add_generation_prompt = true;
    std::span<const SpecialToken> special_tokens;
    const std::tm* now = nullptr;   // local time for strftime_now; null: the clock
    int64_t max_steps = 1'000'000;  // evaluations; 64 bytes copied or searched; 16 read by character
  };
  // Throws Error(kInvalidArgument): the template's own raise_exception message, or line and reason; also past
  // max_steps, 16 MiB of output, 48 MiB of values or depth 64. Safe to call from several threads.
  std::string render(const Input& input) const;

  // Does the template loop over the parts of a message's content, rather than take it as a string?
  bool loops_over_content() const;
  bool mentions(std::string_view word) const;  // anywhere in the source
  const std::string& source() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
