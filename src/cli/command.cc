#include "cli/command.h"

#include <unistd.h>

#include <cstdio>

#include "base/environment.h"
#include "base/error.h"

namespace quire {
namespace {

LogLevel level_of(const std::string& name, LogLevel standard) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error" || name == "critical") return LogLevel::kError;
  return standard;
}

std::string name_of(LogLevel level) { return level == LogLevel::kInfo ? "info" : "warning"; }

}  // namespace

bool parse_options(OptionTable& table, Arguments args, LogLevel default_level, ParsedOptions& parsed) {
  std::string level = name_of(default_level);
  table.group("General");
  table.add("log-level", level, "least important lines to log, on stderr")
      .choices({"debug", "info", "warning", "error", "critical"})
      .env("QUIRE_LOG_LEVEL")
      .env("VLLM_LOGGING_LEVEL");
  std::string format = "text";
  table.add("log-format", format, "form of the lines: text, or a JSON object in each").choices({"text", "json"});
  parsed = table.parse(args);
  if (!parsed.help.empty()) {
    print(parsed.help);
    return false;
  }
  set_log_level(level_of(level, default_level));
  set_log_format(format == "json" ? LogFormat::kJson : LogFormat::kText);
  for (const std::string& warning : parsed.warnings) log_warning(warning);
  for (const std::string& warning : environment_warnings(environ)) log_warning(warning);
  return true;
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(ErrorKind::kInternal, "standard output is closed or full");
  }
}

}  // namespace quire
