#pragma once
#include <string_view>

#include "text/jinja/ast.h"

namespace quire::jinja {

inline constexpr int kMaxBlockDepth = 64;        // of statements
inline constexpr int kMaxExpressionDepth = 256;  // of an expression's tree

// Throws SyntaxError (text/jinja/lexer.h). source must be valid UTF-8.
Template parse(std::string_view source);

}  // namespace quire::jinja
