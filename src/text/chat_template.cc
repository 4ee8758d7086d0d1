#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/jinja/content_loops.h"
#include "text/jinja/from_json.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"
#include "text/unicode.h"

namespace quire {
namespace {

using jinja::Value;

constexpr size_t kMaxSource = 512u << 10;  // bytes

Error error_at(int line, std::string_view reason) {
  return invalid_argument(fmt::format("chat template, line {}: {}", line, reason), "chat_template");
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Template source;
  std::string text;
  bool loops_over_content = false;  // looked for once: requests ask

  void set(jinja::Interpreter& interpreter, std::string_view name, Value value) const {
    const auto symbol = find(name);
    if (symbol >= 0) interpreter.set_variable(symbol, std::move(value));
  }
  // Converts only what the template mentions.
  void set(jinja::Interpreter& interpreter, std::string_view name, const nlohmann::ordered_json* json) const {
    const auto symbol = find(name);
    if (symbol < 0) return;
    interpreter.set_variable(symbol, json ? jinja::from_json(interpreter.arena(), *json) : Value::none());
  }
  jinja::Symbol find(std::string_view name) const {
    const auto entry = std::find(source.symbols.begin(), source.symbols.end(), name);
    return entry == source.symbols.end() ? -1 : static_cast<jinja::Symbol>(entry - source.symbols.begin());
  }
};

ChatTemplate::ChatTemplate(std::string_view source) : impl_(std::make_unique<Impl>()) {
  if (source.size() > kMaxSource) {
    throw invalid_argument(fmt::format("the chat template has {} bytes, more than {}", source.size(), kMaxSource),
                           "chat_template");
  }
  if (!is_valid_utf8(source)) throw invalid_argument("the chat template is not valid UTF-8", "chat_template");
  try {
    impl_->source = jinja::parse(source);
    impl_->text = source;
    impl_->loops_over_content = jinja::loops_over_content(impl_->source);
  } catch (const jinja::SyntaxError& error) {
    throw error_at(error.line, error.reason);
  }
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

bool ChatTemplate::loops_over_content() const { return impl_->loops_over_content; }

bool ChatTemplate::mentions(std::string_view word) const { return impl_->text.find(word) != std::string::npos; }

const std::string& ChatTemplate::source() const { return impl_->text; }

std::string ChatTemplate::render(const Input& input) const {
  jinja::Interpreter interpreter(impl_->source, input.now, input.max_steps);
  try {
    const Impl& impl = *impl_;
    for (const auto& [name, token] : input.special_tokens) impl.set(interpreter, name, Value::borrowed(token));
    impl.set(interpreter, "documents", nullptr);
    if (input.extra && input.extra->is_object()) {
      for (const auto& [name, value] : input.extra->items()) impl.set(interpreter, name, &value);
    }
    impl.set(interpreter, "messages", input.messages);
    impl.set(interpreter, "tools", input.tools);
    impl.set(interpreter, "add_generation_prompt", Value::boolean(input.add_generation_prompt));
    return interpreter.render();
  } catch (const jinja::Failure& failure) {
    throw error_at(interpreter.line(), failure.what());
  }
}

}  // namespace quire
