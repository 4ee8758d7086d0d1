#include "bench/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/error.h"

namespace quire {
namespace {

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::clamp(seconds, 0.0, 1e9));
  constexpr int64_t kMinute = 60, kHour = 3600;
  if (whole < kHour) return fmt::format("{:02}:{:02}", whole / kMinute, whole % kMinute);
  return fmt::format("{}:{:02}:{:02}", whole / kHour, whole % kHour / kMinute, whole % kMinute);
}

}  // namespace

void say(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Error(ErrorKind::kInternal, "standard output is closed or full");
}

ProgressBar::ProgressBar(bool wanted, size_t total)
    : shown_(wanted && total > 0 && isatty(STDERR_FILENO) != 0), total_(total) {}

ProgressBar::~ProgressBar() {
  if (shown_) std::fputc('\n', stderr);
}

void ProgressBar::show(size_t done) {
  if (!shown_) return;
  constexpr size_t kWidth = 30;
  const double share = static_cast<double>(done) / static_cast<double>(total_);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const std::string left = done > 0 ? clock_text(seconds * (1 / share - 1)) : "?";
  const std::string line = fmt::format("\r{:3.0f}% |{:<{}}| {}/{} [{}<{}, {:.2f} requests/s] ", share * 100,
                                       std::string(static_cast<size_t>(share * kWidth), '#'), kWidth, done, total_,
                                       clock_text(seconds), left, rate);
  std::fputs(line.c_str(), stderr);
}

}  // namespace quire
