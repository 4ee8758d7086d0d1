#pragma once
// One logger for the process, on stderr: lines "LEVEL MM-DD HH:MM:SS message", or a JSON object in each line. What
// can't be shown (control characters, bytes that are no UTF-8) is escaped, so that text from a request can't forge a
// line.
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <variant>

namespace quire {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// Of a JSON line; the text form shows the message alone.
struct LogField {
  std::string_view name;  // plain letters
  std::variant<std::string_view, int64_t, double> value;
};

void set_log_level(LogLevel level);
void set_log_format(LogFormat format);
bool log_enabled(LogLevel level);
void log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

inline void log_debug(std::string_view message) { log(LogLevel::kDebug, message); }
inline void log_info(std::string_view message) { log(LogLevel::kInfo, message); }
inline void log_warning(std::string_view message) { log(LogLevel::kWarning, message); }
inline void log_error(std::string_view message) { log(LogLevel::kError, message); }

}  // namespace quire
