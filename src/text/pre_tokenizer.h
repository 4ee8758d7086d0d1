#pragma once
// Cuts text into the words that byte-pair encoding works on. The patterns of well-known models are scanned by hand in
// linear time; any other pattern runs on PCRE2 with match limits.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// A part of a text, in bytes.
struct TextSpan {
  uint32_t begin, end;
};

// One stage: appends the spans of text[whole.begin, whole.end) in order; they need not cover it. Looks at nothing
// outside.
class Splitter {
 public:
  virtual ~Splitter() = default;
  virtual void split(std::string_view text, TextSpan whole, std::vector<TextSpan>& out) const = 0;
};

enum class KnownPattern {
  kGpt2,         // byte-level pattern of GPT-2
  kDigit,        // each number character alone
  kDigits3,      // \p{N}{1,3}
  kLlama3,       // cl100k with numbers in groups of up to 3
  kQwen2,        // the same, numbers one by one
  kDeepSeekCjk,  // [一-龥぀-ゟ゠-ヿ]+
  kDeepSeekV3,
  kO200k,  // gpt-oss, GPT-4o
};
std::unique_ptr<Splitter> make_splitter(KnownPattern pattern);

// Cuts before each U+2581 that follows another character, unless the byte before it is in glued (256 entries).
std::unique_ptr<Splitter> make_mark_splitter(const std::array<bool, 256>& glued);

// What becomes of a match: a part of its own, dropped, or joined to a neighbour. kContiguous: neighbouring matches
// become one.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// A hand-written scanner if the pattern is a well-known one, else PCRE2. invert: the pattern matches the words, not
// what is between. Throws Error(kInvalidArgument) for a pattern that does not compile; split() throws it when a text
// needs more than the match limits.
std::unique_ptr<Splitter> make_regex_splitter(const std::string& pattern, SplitBehavior behavior, bool invert);
std::unique_ptr<Splitter> make_literal_splitter(const std::string& literal, SplitBehavior behavior, bool invert);

class PreTokenizer {
 public:
  struct Scratch {
    std::vector<TextSpan> spans, next;
  };

  void add(std::unique_ptr<Splitter> stage) { stages_.push_back(std::move(stage)); }
  void add(KnownPattern pattern) { add(make_splitter(pattern)); }

  // The words of text (valid UTF-8, under 2 GiB), in scratch.spans. No stage: the text itself.
  const std::vector<TextSpan>& split(std::string_view text, Scratch& scratch) const;

 private:
  std::vector<std::unique_ptr<Splitter>> stages_;
};

}  // namespace quire
