#pragma once
// Renders a conversation with a model's Jinja chat template, in the environment that Hugging Face transformers gives it
// (trim_blocks, lstrip_blocks, loop controls, raise_exception, strftime_now, its own tojson).
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace quire {

class ChatTemplate {
 public:
  // Throws Error(kInvalidArgument) with line and reason.
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  struct Input {
    const nlohmann::ordered_json* messages = nullptr;  // array of {role, content, ...}
    const nlohmann::ordered_json* tools = nullptr;     // null or array
    const nlohmann::ordered_json* extra = nullptr;     // null or object: chat_template_kwargs, documents
    bool add_generation_prompt = true;
    std::string_view bos_token, eos_token;  // a template sees "" for none
    const std::tm* now = nullptr;           // local time for strftime_now; null: the clock
  };
  // Throws Error(kInvalidArgument): the template's own raise_exception message, or line and reason; also past 1e6
  // steps, 16 MiB of output or depth 64. Safe to call from several threads.
  std::string render(const Input& input) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
