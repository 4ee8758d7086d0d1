#pragma once
#include "text/jinja/ast.h"

namespace quire::jinja {

// Does the template loop over the parts of a message's content? Then it takes content as a list of parts. As vLLM
// decides: "for part in message.content", where message is the variable of a loop over `messages` or over a variable
// that was set to it; filters, tests and slices on the way count for nothing.
bool loops_over_content(const Template& source);

}  // namespace quire::jinja
