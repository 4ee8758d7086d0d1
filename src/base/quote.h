#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace quire {

// Text of a file or a user as a message shows it: in double quotes, escaped as in JSON, bytes that are no UTF-8 as
// \xNN; of more than limit bytes the rest is "...". ({:?} of fmt 9 ends the program at text that is cut inside a
// character.)
std::string quote(std::string_view text, size_t limit = 64);

}  // namespace quire
