#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

namespace quire {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// The level as people search for it: INFO, WARNING.
std::string_view level_name(spdlog::level::level_enum level) {
  if (level == spdlog::level::debug) return "DEBUG";
  if (level == spdlog::level::warn) return "WARNING";
  return level == spdlog::level::err ? "ERROR" : "INFO";
}

class LevelName final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string_view name = level_name(message.level);
    out.append(name.data(), name.data() + name.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<LevelName>(); }
};

void set_pattern(spdlog::logger& target, LogFormat format) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelName>('*').set_pattern(format == LogFormat::kJson ? "%v" : "%^%*%$ %m-%d %H:%M:%S %v");
  target.set_formatter(std::move(formatter));
}

struct ProcessLog {
  std::shared_ptr<spdlog::logger> logger;
  std::atomic<LogFormat> format{LogFormat::kText};
};

ProcessLog& process_log() {
  static ProcessLog instance = {[] {
    auto made = std::make_shared<spdlog::logger>("quire", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    set_pattern(*made, LogFormat::kText);
    // A closed or full stderr must not stop the server: the line is lost, nothing else.
    made->set_error_handler([](const std::string&) {});
    return made;
  }()};
  return instance;
}

spdlog::logger& logger() { return *process_log().logger; }

// Bytes of the character that `text` begins with, 0 if it is no UTF-8 (overlong forms and surrogates are none).
size_t character_bytes(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  const size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (at(i) >> 6 != 2) return 0;
  }
  const bool overlong = (length == 2 && first < 0xC2) || (length == 3 && first == 0xE0 && at(1) < 0xA0) ||
                        (length == 4 && first == 0xF0 && at(1) < 0x90);
  const bool out_of_range = (length == 3 && first == 0xED && at(1) >= 0xA0) ||
                            (length == 4 && (first > 0xF4 || (first == 0xF4 && at(1) >= 0x90)));
  return overlong || out_of_range ? 0 : length;
}

// Control characters (C0, DEL, and C1, which terminals obey too) and broken bytes as \xNN. In a JSON string the
// backslash itself and quotes are escaped, the former so that what is shown can be told from what was there.
void append_escaped(std::string& out, std::string_view text, bool json) {
  static constexpr char kHex[] = "0123456789abcdef";
  while (!text.empty()) {
    const size_t length = character_bytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool control = (length == 1 && (first < 0x20 || first == 0x7f)) ||
                         (length == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0);
    if (length == 0 || control) {
      for (size_t i = 0; i < std::max<size_t>(length, 1); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        out += json ? "\\\\x" : "\\x";
        out += kHex[byte >> 4];
        out += kHex[byte & 15];
      }
    } else {
      if (json && (first == '"' || first == '\\')) out += '\\';
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
}

void append_json_field(std::string& out, const LogField& field) {
  fmt::format_to(std::back_inserter(out), ",\"{}\":", field.name);
  if (const auto* text = std::get_if<std::string_view>(&field.value)) {
    out += '"';
    append_escaped(out, *text, true);
    out += '"';
  } else if (const auto* whole = std::get_if<int64_t>(&field.value)) {
    out += std::to_string(*whole);
  } else {
    fmt::format_to(std::back_inserter(out), "{:.6f}", std::get<double>(field.value));
  }
}

std::string json_line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::string out = fmt::format(R"({{"time":"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z","level":"{}","message":")",
                                parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
                                parts.tm_sec, millis, level_name(to_spdlog(level)));
  append_escaped(out, message, true);
  out += '"';
  for (const LogField& field : fields) append_json_field(out, field);
  return out + '}';
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

void set_log_format(LogFormat format) {
  process_log().format = format;
  set_pattern(logger(), format);
}

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

void log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  if (!log_enabled(level)) return;
  std::string line;
  if (process_log().format == LogFormat::kJson) {
    line = json_line(level, message, fields);
  } else {
    append_escaped(line, message, false);
  }
  logger().log(to_spdlog(level), std::string_view(line));
}

}  // namespace quire
