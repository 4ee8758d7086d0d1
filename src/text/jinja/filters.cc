#include "text/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/strings.h"

namespace quire::jinja {

Filter find_filter(std::string_view name) {
  for (const std::span<const FilterEntry> table :
       {text_filters(), layout_filters(), sequence_filters(), order_filters()}) {
    const auto entry = std::find_if(table.begin(), table.end(), [&](const FilterEntry& e) { return e.name == name; });
    if (entry != table.end()) return entry->filter;
  }
  return nullptr;
}

std::string no_filter(std::string_view name) {
  for (const std::string_view known : {"pprint", "random", "striptags", "urlize"}) {
    if (name == known) return fmt::format("the filter '{}' is not offered to chat templates", name);
  }
  return fmt::format("No filter named '{}'.", name);
}

AttributePath::AttributePath(Interpreter& interpreter, const Value& attribute, const Value& fallback)
    : interpreter_(interpreter), fallback_(fallback) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  interpreter.arena().scan(attribute.text().size());
  for (const std::string_view part : split(attribute.text(), ".", -1)) {
    int64_t index = 0;
    const bool is_index = !part.empty() &&
                          std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
                          parse_integer(part, 10, index) == IntegerParse::kOk;
    parts_.push_back(is_index ? Value::integer(index) : attribute.part(part));
  }
}

Value AttributePath::operator()(const Value& item) const {
  Value value = item;
  interpreter_.arena().step(static_cast<int64_t>(parts_.size()));
  for (const Value& part : parts_) {
    value = interpreter_.item(value, part);
    if (value.is_undefined() && !fallback_.is_none()) value = fallback_;
  }
  return value;
}

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (out.size() > Arena::kMaxText) fail("escape: the result is too long");
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value fold_case(Arena& arena, const Value& value) {
  if (!value.is_string()) return value;
  arena.scan(value.text().size());
  return Value::string(arena, to_lower(value.text()));
}

}  // namespace quire::jinja
