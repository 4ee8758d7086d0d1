#pragma once
// How values print: str(), repr() and JSON.
#include <string>

#include "text/jinja/value.h"

namespace quire::jinja {

// All append to out and throw Failure for what cannot be printed, is nested deeper than kMaxPrintDepth, or makes out
// longer than Arena::kMaxText.
inline constexpr int kMaxPrintDepth = 64;

void append_str(std::string& out, const Value& value);
void append_repr(std::string& out, const Value& value);
std::string to_str(const Value& value);
// The value itself if it is a string.
Value str_value(Arena& arena, const Value& value);

void append_real(std::string& out, double value);  // as repr() of a float

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // one item a line
  std::string indent;   // of one level, if pretty
  std::string item_separator = ", ", key_separator = ": ";
};
void append_json(std::string& out, const Value& value, const JsonStyle& style);  // as json.dumps()

}  // namespace quire::jinja
