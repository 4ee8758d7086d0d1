#pragma once
// Server-sent events out of a body that comes in pieces: the data of each `data:` line, with room behind it that a JSON
// parser may read.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

class EventLines {
 public:
  static constexpr size_t kMaxLine = size_t{16} << 20;  // bytes; one event may hold many log-probabilities
  static constexpr size_t kPadding = 64;                // bytes behind a line that may be read

  // Adds bytes of the body. What next() has returned before is no longer valid. Throws Error(kUnavailable) if a line
  // passes kMaxLine.
  void feed(std::string_view bytes);
  void finish();  // the body is over: what is left is a line

  // The data of the next complete line, trimmed; comments, empty lines and other fields are left out. Valid until the
  // next feed(). Empty optional: none is complete.
  std::optional<std::string_view> next();

  void reset();

 private:
  std::string text_;
  size_t at_ = 0;  // what is before has been returned
};

}  // namespace quire
