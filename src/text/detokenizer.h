#pragma once
// Incremental detokenizer of one generated sequence: token ids in, whole UTF-8 text out, with stop strings found across tokens.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace quire {

class Detokenizer {
 public:
  struct Options {
    bool skip_special_tokens = true;
    std::vector<std::string> stop;
    bool include_stop_string = false;
    int64_t min_tokens = 0;  // stop strings count only after this many tokens
  };
  Detokenizer(const Tokenizer& tokenizer, Options options);

  // Adds one token. Returns the index of the stop string that it completes: the earliest-ending match wins, ties go to list order;
  // text is then cut before it (or after it with include_stop_string), and push must not be called again.
  std::optional<size_t> push(int32_t id);
  // No more tokens: a half character at the end becomes U+FFFD.
  void finish();

  // All text so far, without held-back bytes.
  const std::string& text() const { return text_; }
  // Text that may be shown since the last call: holds back max(stop length) - 1 bytes (never half a character) until finish() or a
  // stop, since they could begin a stop string.
  std::string_view take();

 private:
  const Tokenizer& tokenizer_;
  Options options_;
  std::string text_, pending_;
  size_t shown_ = 0, longest_stop_ = 0;
  int64_t tokens_ = 0;
  bool done_ = false;
};

}  // namespace quire
