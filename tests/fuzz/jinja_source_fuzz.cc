// Any bytes as a chat template, rendered with one conversation that has a value of every kind. The template may fail,
// in its own words only; what it writes is valid UTF-8, and a second rendering gives the same.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/unicode.h"

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMessages = R"([
  {"role": "system", "content": " You are brief.\n"},
  {"role": "user", "content": "straße ÉCOLE 👩‍🚀 <b>&\"'"},
  {"role": "assistant", "content": "<think>hm</think>\nfine", "tool_calls": [{"function": {"name": "f", "arguments": {"n": 1.5}}}]},
  {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": null}]}])";
constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "f", "parameters": {"k": ["Köln", -3, 1e20, true]}}}])";
constexpr const char* kValues =
    R"({"x": 18446744073709551615, "n": [3, 1, -5, 9223372036854775807], "s": "a b\tc\r\nd", "d": {"b": {}, "a": []}})";

// Steps cost ten times as much under the sanitizers.
constexpr int64_t kMaxSteps = 50'000;

// What the template writes, or why it fails.
std::string outcome(const quire::ChatTemplate& chat, const quire::ChatTemplate::Input& input) {
  try {
    return "+" + chat.render(input);
  } catch (const quire::Error& error) {
    return error.what();
  }
}

void check(bool holds, const char* otherwise) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", otherwise);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Json messages = Json::parse(kMessages), tools = Json::parse(kTools), values = Json::parse(kValues);
  static const std::tm now = {.tm_sec = 7, .tm_min = 6, .tm_hour = 5, .tm_mday = 4, .tm_mon = 2, .tm_year = 126};
  try {
    const quire::ChatTemplate chat(std::string_view(reinterpret_cast<const char*>(data), size));
    chat.loops_over_content();
    quire::ChatTemplate::Input input;
    input.messages = &messages;
    input.tools = &tools;
    input.extra = &values;
    input.now = &now;
    input.max_steps = kMaxSteps;
    const std::string text = outcome(chat, input);
    check(quire::is_valid_utf8(text), "invalid UTF-8 came out");
    check(outcome(chat, input) == text, "two renderings differ");
  } catch (const quire::Error&) {
    // It is no template.
  }
  return 0;
}
