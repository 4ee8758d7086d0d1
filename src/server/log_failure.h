#pragma once
#include <exception>

namespace quire {

// "what: error" as an error line; nothing if there is no memory for a line.
void log_failure(const char* what, const std::exception& error) noexcept;

}  // namespace quire
