// Any conversation in the chat templates of models, and in one that puts its values through most filters and methods.
// The bytes spell JSON: one for the kind, then the length, the number or the characters. Rendering ends with text or
// with an Error.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/chat_format.h"

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEverything = R"({%- macro show(v, depth) -%}
{%- if v is mapping and depth < 9 -%}{%- for k, x in v | dictsort -%}{{ k }}={{ show(x, depth + 1) }}{%- endfor -%}
{%- elif v is string -%}{{ v.strip() | upper | trim }}{{ v[::-1] }}{{ v[1:3] }}{{ v.split('a') }}{{ v | title | wordwrap(3) | indent }}
{{- v | tojson(ensure_ascii=true) }}{{ v | urlencode }}{{ v | escape | truncate(3) }}{{ v.rsplit(none, 2) }}{{ v.replace('a', v) }}{{ v | int }}
{{- v | float }}{{ v.splitlines() }}{{ v.casefold().center(5) }}{{ v | list | unique | sort | join }}{{ '%s|%5.2s|%a' % (v, v, v) }}
{{- '{:>9}{!r}'.format(v, v) }}{{ v.partition('\n') }}{{ v is lower }}{{ v.isalnum() }}{{ v | wordcount }}{{ v.translate({97: v}) }}
{%- elif v is number -%}{{ v | string ~ v | round(1) ~ v | abs ~ '%e %g' % (v, v) ~ '{:012,.2f}'.format(v) ~ (v | filesizeformat) }}
{%- elif v is iterable and depth < 9 -%}{%- for x in v -%}{{ show(x, depth + 1) }}{{ loop.previtem }}{%- endfor -%}{{ v | map('string') | sort | list }}
{{- v | batch(2) | list }}{{ v | slice(2) | list }}{{ v | reverse | list }}{{ v | select('mapping') | map(attribute='text') | list }}
{%- endif -%}{{ v | tojson(indent=1) }}{{ [v] == [v] }}{{ v }}{%- endmacro -%}
{%- for m in messages %}{{ show(m, 0) }}{% for part in m.content %}{{ part }}{% endfor %}{% endfor %}{{ show(tools, 0) }}{{ show(documents, 0) }})";

// Reads values off the bytes until there are none; whatever they are, they spell something.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return value;
  }
  std::string text() {
    const size_t size = std::min<size_t>(byte(), bytes_.size());
    const std::string value(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return value;
  }
  Json value(int depth) {
    static constexpr int kMaxDepth = 40;
    switch (const uint8_t kind = byte(); depth < kMaxDepth ? kind % 10 : kind % 7) {
      case 0:
        return nullptr;
      case 1:
        return kind < 128;
      case 2:
        return static_cast<int64_t>(number());
      case 3:
        return number();
      case 4: {
        const auto size = static_cast<double>(static_cast<int64_t>(number()));
        return size / 1e9;
      }
      case 5:
      case 6:
        return text();
      case 7: {
        Json list = Json::array();
        for (size_t count = byte() % 8; list.size() < count;) list.push_back(value(depth + 1));
        return list;
      }
      default:
        return object(depth);
    }
  }

 private:
  uint64_t number() {
    uint64_t value = 0;
    for (int i = byte() % 9; i > 0; --i) value = value << 8 | byte();
    return value;
  }
  Json object(int depth) {
    static constexpr const char* kKeys[] = {
        "role", "content",    "tool_calls", "function",          "name",       "arguments", "type",
        "text", "parameters", "properties", "reasoning_content", "description"};
    Json object = Json::object();
    for (int i = byte() % 6; i > 0; --i) {
      const uint8_t key = byte();
      object[key < std::size(kKeys) ? kKeys[key] : text()] = value(depth + 1);
    }
    return object;
  }

  std::string_view bytes_;
};

std::vector<quire::ChatFormat> load_formats() {
  std::ifstream file(std::filesystem::path(QUIRE_TEST_DATA) / "text/chat_template_cases.json");
  std::vector<std::string> sources = {kEverything};
  const Json cases = Json::parse(file);
  for (const Json& source : cases.at("templates")) sources.push_back(source);
  std::vector<quire::ChatFormat> formats;
  for (const std::string& source : sources) {
    quire::ChatFormat::Templates templates;
    templates.emplace("default", source);
    formats.emplace_back(std::move(templates), std::vector<quire::SpecialToken>{{"bos_token", "<s>"}});
  }
  return formats;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& formats = *new std::vector<quire::ChatFormat>(load_formats());
  static constexpr const char* kRoles[] = {"user", "assistant", "system", "tool"};
  Reader reader(std::string_view(reinterpret_cast<const char*>(data), size));
  const quire::ChatFormat& format = formats[reader.byte() % formats.size()];
  const uint8_t flags = reader.byte();
  Json messages = Json::array();
  for (size_t count = 1 + reader.byte() % 6; messages.size() < count;) {
    Json message = reader.value(0);
    if (!message.is_object()) message = {{"content", std::move(message)}};
    if (!message.contains("role")) message["role"] = kRoles[reader.byte() % std::size(kRoles)];
    messages.push_back(std::move(message));
  }
  Json tools = Json::array({reader.value(0)});
  Json values = {{"documents", Json::array({reader.value(0)})}, {"enable_thinking", (flags & 8) != 0}};
  quire::ChatFormat::Conversation conversation;
  conversation.messages = &messages;
  conversation.tools = (flags & 1) != 0 ? &tools : nullptr;
  conversation.values = (flags & 2) != 0 ? &values : nullptr;
  conversation.continue_final_message = (flags & 4) != 0;
  conversation.add_generation_prompt = (flags & 4) == 0;
  conversation.content_format = static_cast<quire::ContentFormat>(flags / 16 % 3);
  try {
    format.render(conversation);
  } catch (const quire::Error&) {
    // The template does not take it.
  }
  return 0;
}
