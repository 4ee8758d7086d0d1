#pragma once
// One logger for the process, on stderr, in the form "LEVEL MM-DD HH:MM:SS message". Control characters in a message
// are escaped, so that text from a request can't forge a line.
#include <string_view>

namespace quire {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log(LogLevel level, std::string_view message);

inline void log_debug(std::string_view message) { log(LogLevel::kDebug, message); }
inline void log_info(std::string_view message) { log(LogLevel::kInfo, message); }
inline void log_warning(std::string_view message) { log(LogLevel::kWarning, message); }
inline void log_error(std::string_view message) { log(LogLevel::kError, message); }

}  // namespace quire
