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
  kClip,         // the same without spaces, which are left out, and with numbers one by one
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

std::unique_ptr<Splitter> make_white_space_splitter();  // what is between white space
std::unique_ptr<Splitter> make_word_splitter();         // \w+|[^\w\s]+
std::unique_ptr<Splitter> make_bert_splitter();  // what is between white space, and each punctuation character alone
std::unique_ptr<Splitter> make_punctuation_splitter(SplitBehavior behavior);
std::unique_ptr<Splitter> make_script_splitter();  // runs of one script; spaces go with what is before them
std::unique_ptr<Splitter> make_length_splitter(size_t characters);  // so many characters each, but for the last
std::unique_ptr<Splitter> make_digit_splitter(bool individual);     // each number character alone, or runs of them

// What a pre-tokenizer puts in front of words, and in place of spaces.
struct WordPrefix {
  enum class Scheme { kNever, kFirst, kAlways };  // kFirst: only at the start of the whole text
  std::string mark;                               // what a space becomes; empty: it stays
  std::string prefix;                             // put before a word that doesn't begin with it
  Scheme scheme = Scheme::kNever;
};

class PreTokenizer {
 public:
  struct Scratch {
    std::vector<TextSpan> spans, next;
    std::string texts[2];
  };
  struct Words {
    std::string_view text;  // the given one, or one in scratch
    const std::vector<TextSpan>& spans;
  };

  void add(std::unique_ptr<Splitter> stage) { stages_.push_back({std::move(stage), {}, false}); }
  void add(KnownPattern pattern) { add(make_splitter(pattern)); }
  void add(WordPrefix prefix) { stages_.push_back({nullptr, std::move(prefix), false}); }
  // Words are written in the alphabet of text/byte_level.h from here on.
  void add_byte_spelling() { stages_.push_back({nullptr, {}, true}); }

  // The words of text (valid UTF-8, under 1 GiB). No stage: the text itself. at_start: nothing comes before text.
  // Throws Error(kInvalidArgument) if prefixes make it longer than that.
  Words split(std::string_view text, bool at_start, Scratch& scratch) const;

 private:
  struct Stage {
    std::unique_ptr<Splitter> splitter;  // null: words are rewritten
    WordPrefix prefix;
    bool spells_bytes = false;
  };
  static std::string_view spell_bytes(std::string_view text, std::string& out, std::vector<TextSpan>& spans);
  static std::string_view rewrite(const WordPrefix& prefix, std::string_view text, bool at_start, std::string& out,
                                  std::vector<TextSpan>& spans);

  std::vector<Stage> stages_;
};

}  // namespace quire
