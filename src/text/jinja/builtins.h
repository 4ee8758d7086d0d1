#pragma once
// The functions that templates find by name.
#include <string>
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace quire::jinja {

class Interpreter;

// All throw Failure, with a message as Python's where it has one.
using Filter = Value (*)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
using Test = bool (*)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
using Method = Value (*)(Interpreter& interpreter, const Value& self, const Arguments& arguments);
using Function = Value (*)(Interpreter& interpreter, const Arguments& arguments);

// All give null if there is none of that name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
Method find_method(Kind type, std::string_view name);
Function find_global(std::string_view name);

// What to say of a filter that find_filter does not find.
std::string no_filter(std::string_view name);

// Would the method change its object? The sandbox refuses those.
bool is_mutating_method(Kind type, std::string_view name);

}  // namespace quire::jinja
