#pragma once
// Python's two ways to format strings.
#include <string>
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace quire::jinja {

class Interpreter;

// format % values, where values is a tuple, a dict or one value.
Value format_percent(Arena& arena, const Value& format, const Value& values);
// str.format() and str.format_map(); attributes in fields follow the template's rules.
Value format_braces(Interpreter& interpreter, const Value& format, const Arguments& arguments);

}  // namespace quire::jinja
