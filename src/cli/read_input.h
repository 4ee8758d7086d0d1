#pragma once
#include <cstddef>
#include <string>

namespace quire {

// A whole file, or standard input if path is "-". Throws Error if it can't be read or is longer than `most` bytes; no
// more than that is ever held.
std::string read_input(const std::string& path, size_t most);

}  // namespace quire
