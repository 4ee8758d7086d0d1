#pragma once
// The tables that find_filter looks into, and what their files share.
#include <span>
#include <string_view>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"

namespace quire::jinja {

struct FilterEntry {
  std::string_view name;
  Filter filter;
};

std::span<const FilterEntry> text_filters();      // filters_text.cc
std::span<const FilterEntry> layout_filters();    // filters_layout.cc
std::span<const FilterEntry> sequence_filters();  // filters_sequence.cc
std::span<const FilterEntry> order_filters();     // filters_order.cc

// What the filters' argument `attribute` names: "a.b.0", a number, or none for the item itself. Undefined parts become
// `fallback`, if it is given and not none.
class AttributePath {
 public:
  AttributePath(Interpreter& interpreter, const Value& attribute, const Value& fallback = Value::none());
  Value operator()(const Value& item) const;

 private:
  Interpreter& interpreter_;
  std::vector<Value> parts_;
  Value fallback_;
};

// The five characters that mean something in markup become entities. Throws Failure if the result is too long.
std::string escape_markup(std::string_view text);

// Strings in lower case, anything else as it is: what sorting and comparing filters look at unless case_sensitive.
Value fold_case(Arena& arena, const Value& value);

}  // namespace quire::jinja
