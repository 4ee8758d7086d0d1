#include "engine/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace quire {

std::function<void(double)> make_progress_bar(const std::string& label) {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [label, shown = -1](double fraction) mutable {
    constexpr int kWidth = 40;
    const int percent = static_cast<int>(fraction * 100.0);
    if (percent == shown) return;
    shown = percent;
    const int filled = percent * kWidth / 100;
    const std::string bar =
        std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(kWidth - filled), '.');
    const std::string line = fmt::format("\r{} [{}] {:3d}%{}", label, bar, percent, percent == 100 ? "\n" : "");
    std::fputs(line.c_str(), stderr);
  };
}

}  // namespace quire
