#include "client/event_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace quire {

void EventLines::feed(std::string_view bytes) {
  text_.erase(0, at_);
  at_ = 0;
  text_.reserve(text_.size() + bytes.size() + kPadding + 1);
  text_ += bytes;
}

void EventLines::finish() {
  if (at_ < text_.size()) feed("\n");
}

std::optional<std::string_view> EventLines::next() {
  constexpr std::string_view kField = "data:";
  while (at_ < text_.size()) {
    const size_t end = text_.find('\n', at_);
    if (std::min(end, text_.size()) - at_ > kMaxLine)
      throw Error(ErrorKind::kUnavailable, fmt::format("a line of the answer is longer than {} bytes", kMaxLine));
    if (end == std::string::npos) return std::nullopt;
    std::string_view line(text_.data() + at_, end - at_);
    at_ = end + 1;
    if (!line.starts_with(kField)) continue;
    line.remove_prefix(kField.size());
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r')) line.remove_suffix(1);
    if (!line.empty()) return line;
  }
  return std::nullopt;
}

void EventLines::reset() {
  text_.clear();
  at_ = 0;
}

}  // namespace quire
