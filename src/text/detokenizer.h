#pragma once
// Incremental detokenizer of one generated sequence: token ids in, whole UTF-8 text out, with stop strings found across
// tokens.
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
    std::vector<std::string> stop = {};
    bool include_stop_string = false;
    int64_t min_tokens = 0;  // stop strings count only after this many tokens
  };
  // The tokenizer must outlive it. Empty stop strings are ignored.
  Detokenizer(const Tokenizer& tokenizer, Options options);

  // Adds one token. Returns the index of the stop string that it completes: the earliest-ending match wins, ties go to
  // list order; text is then cut before it (or after it with include_stop_string), and what is pushed after that is
  // ignored. Time is linear in the token's bytes, whatever came before.
  std::optional<size_t> push(int32_t id);
  // No more tokens: a half character at the end becomes U+FFFD.
  void finish();

  // All text so far, without held-back bytes.
  const std::string& text() const { return text_; }
  // Text that may be shown since the last call: holds back max(stop length) - 1 bytes (never half a character) until
  // finish() or a stop, since they could begin a stop string. Nothing is held back with include_stop_string. Valid
  // until the next call.
  std::string_view take();

 private:
  // A stop string and how much of it the text ends with (Knuth-Morris-Pratt).
  struct Stop {
    size_t index;  // in options.stop
    std::string text;
    std::vector<uint32_t> border;  // border[i]: longest proper prefix of text that ends text[0, i + 1)
    size_t matched = 0;
    bool advance(char c);  // true if c completes it
  };
  std::optional<size_t> find_stop(size_t from);

  const Tokenizer& tokenizer_;
  bool skip_special_tokens_, include_stop_string_;
  int64_t min_tokens_, tokens_ = 0;
  std::vector<Stop> stops_;
  std::string text_;
  std::string pending_;  // the bytes of a character that has begun, at most 3
  size_t shown_ = 0, held_back_ = 0;
  bool done_ = false;
};

}  // namespace quire
