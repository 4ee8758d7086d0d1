#pragma once
// What a benchmark shows: its results on stdout, its progress on a terminal.
#include <chrono>
#include <cstddef>
#include <string_view>

namespace quire {

void say(std::string_view text);  // to stdout, flushed; throws Error(kInternal) if that fails

// A line on stderr that is drawn over and over. Shows nothing if stderr is no terminal.
class ProgressBar {
 public:
  ProgressBar(bool wanted, size_t total);
  ~ProgressBar();  // ends the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(size_t done);

 private:
  bool shown_;
  size_t total_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace quire
