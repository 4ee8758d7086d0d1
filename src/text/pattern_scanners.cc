// Hand-written scanners of the well-known pre-tokenizer patterns. Each match() gives what the pattern, tried at p as a
// regular expression would, matches there, and p itself for no match. A stretch of text is looked at a bounded number
// of times.
#include <algorithm>

#include "text/pre_tokenizer.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace quire {
namespace {

// A view of the text with the class of the character at a place.
class Classes {
 public:
  explicit Classes(const char* end) : table_(CharTable::get()), end_(end) {}

  struct Character {
    uint8_t bits = 0;    // CharClass
    uint8_t length = 0;  // bytes; 0 at the end of the text
    bool is(int wanted) const { return (bits & wanted) != 0; }
  };
  Character at(const char* p) const {
    if (p == end_) return {};
    const auto byte = static_cast<uint8_t>(*p);
    if (byte < 0x80) return {table_[byte], 1};
    const char* next = p;
    const uint8_t bits = table_[decode_valid_utf8(next)];
    return {bits, static_cast<uint8_t>(next - p)};
  }

  const char* end() const { return end_; }

  // Past the characters from p on that have one of these classes.
  const char* run(const char* p, int wanted) const {
    for (;;) {
      const Character c = at(p);
      if (!c.is(wanted)) return p;
      p += c.length;
    }
  }
  // Past the characters that have none of them.
  const char* run_without(const char* p, int unwanted) const {
    for (;;) {
      const Character c = at(p);
      if (c.length == 0 || c.is(unwanted)) return p;
      p += c.length;
    }
  }
  const char* run_at_most(const char* p, int wanted, int count) const {
    for (; count > 0; --count) {
      const Character c = at(p);
      if (!c.is(wanted)) break;
      p += c.length;
    }
    return p;
  }
  const char* newlines(const char* p) const {
    while (p < end_ && is_newline(*p)) ++p;
    return p;
  }
  static bool is_newline(char c) { return c == '\r' || c == '\n'; }

 private:
  const CharTable& table_;
  const char* end_;
};

// \s+(?!\S)|\s+ and, before it, \s*[\r\n]+ if wanted.
template <bool kNewlines>
const char* match_spaces(const Classes& text, const char* p) {
  const char *q = p, *last = p, *newline_end = nullptr;
  for (;;) {
    const auto c = text.at(q);
    if (!c.is(kSpace)) break;
    last = q;
    q += c.length;
    if (kNewlines && Classes::is_newline(*last)) newline_end = q;
  }
  if (newline_end != nullptr) return newline_end;
  if (q == text.end() || last == p) return q;
  return last;  // the last one is left for the word that follows
}

// 's|'t|'re|'ve|'m|'ll|'d with the apostrophe at p; with any case (U+017F is a case of s).
template <bool kAnyCase>
const char* match_contraction(const Classes& text, const char* p) {
  const auto left = static_cast<size_t>(text.end() - p);
  if (left < 2 || *p != '\'') return p;
  const auto letter = [&](size_t i) {
    return kAnyCase && p[i] >= 'A' && p[i] <= 'Z' ? static_cast<char>(p[i] | 32) : p[i];
  };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
  if (left < 3) return p;
  const char second = letter(2);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
    return p + 3;
  if (kAnyCase && p[1] == '\xC5' && p[2] == '\xBF') return p + 3;
  return p;
}

struct Gpt2 {
  static const char* match(const Classes& text, const char* p) {
    if (const char* q = match_contraction<false>(text, p); q != p) return q;
    const char* word = *p == ' ' ? p + 1 : p;
    const auto c = text.at(word);
    if (c.is(kLetter)) return text.run(word, kLetter);
    if (c.is(kNumber)) return text.run(word, kNumber);
    if (c.length != 0 && !c.is(kSpace)) return text.run_without(word, kSpace | kLetter | kNumber);
    return match_spaces<false>(text, p);
  }
};

// 's|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+
struct Clip {
  static const char* match(const Classes& text, const char* p) {
    if (const char* q = match_contraction<false>(text, p); q != p) return q;
    const auto c = text.at(p);
    if (c.is(kLetter)) return text.run(p, kLetter);
    if (c.is(kNumber)) return p + c.length;
    return text.run_without(p, kSpace | kLetter | kNumber);
  }
};

template <int kDigits>
struct Cl100k {
  static const char* match(const Classes& text, const char* p) {
    if (const char* q = match_contraction<true>(text, p); q != p) return q;
    const auto c = text.at(p);
    if (c.is(kLetter)) return text.run(p, kLetter);
    if (c.is(kNumber)) return text.run_at_most(p, kNumber, kDigits);
    if (!Classes::is_newline(*p) && text.at(p + c.length).is(kLetter)) return text.run(p + c.length, kLetter);
    const char* word = *p == ' ' ? p + 1 : p;
    const auto d = text.at(word);
    if (d.length != 0 && !d.is(kSpace | kLetter | kNumber)) {
      return text.newlines(text.run_without(word, kSpace | kLetter | kNumber));
    }
    return match_spaces<true>(text, p);
  }
};

template <int kCount>
struct Digits {
  static const char* match(const Classes& text, const char* p) { return text.run_at_most(p, kNumber, kCount); }
};

struct DeepSeekCjk {
  static const char* match(const Classes& text, const char* p) {
    while (p < text.end()) {
      const char* next = p;
      const char32_t code = decode_valid_utf8(next);
      if (!((code >= 0x4E00 && code <= 0x9FA5) || (code >= 0x3040 && code <= 0x30FF))) break;
      p = next;
    }
    return p;
  }
};

struct DeepSeekV3 {
  static bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  static const char* match(const Classes& text, const char* p) {
    const auto c = text.at(p);
    if (c.length == 1 && c.is(kPunctuation | kSymbol) && p + 1 < text.end() && is_ascii_letter(p[1])) {
      const char* q = p + 1;
      while (q < text.end() && is_ascii_letter(*q)) ++q;
      return q;
    }
    if (c.is(kLetter | kMark)) return text.run(p, kLetter | kMark);
    if (!Classes::is_newline(*p) && !c.is(kPunctuation | kSymbol) && text.at(p + c.length).is(kLetter | kMark)) {
      return text.run(p + c.length, kLetter | kMark);
    }
    const char* word = *p == ' ' ? p + 1 : p;
    if (const char* q = text.run(word, kPunctuation | kSymbol); q != word) return text.newlines(q);
    return match_spaces<true>(text, p);
  }
};

// Words in mixed case are cut before an upper case letter that follows a lower case one. With U = upper case, l = lower
// case and x = letters without case and marks: P?[Ux]*[lx]+'s?|P?[Ux]+[lx]*'s? and so on, where P is neither letter,
// number nor newline.
struct O200k {
  static constexpr int kNoCase = kOtherLetter | kMark;

  // [Ux]*[lx]+ at p, nullptr for no match. upper_end: the end of [Ux]*.
  static const char* match_lower(const Classes& text, const char* p, const char*& upper_end) {
    const char* last_no_case_end = nullptr;
    for (;;) {
      const auto c = text.at(p);
      if (!c.is(kUpper | kNoCase)) break;
      p += c.length;
      if (c.is(kNoCase)) last_no_case_end = p;
    }
    upper_end = p;
    if (text.at(p).is(kLower)) return text.run(p, kLower | kNoCase);
    return last_no_case_end;  // [Ux]* gives back all after the last x, and that x is what [lx]+ matches
  }

  static const char* match(const Classes& text, const char* p) {
    const auto c = text.at(p);
    if (!Classes::is_newline(*p) && !c.is(kNumber)) {
      const char* word = c.is(kLetter) ? p : p + c.length;
      const char* upper_end = word;
      const char* q = match_lower(text, word, upper_end);
      // A mark at p can also be the word's first character instead of what stands before it.
      if (q == nullptr && c.is(kMark)) q = p + c.length;
      if (q == nullptr && upper_end != word) q = upper_end;
      if (q != nullptr) return match_contraction<true>(text, q);
    }
    if (c.is(kNumber)) return text.run_at_most(p, kNumber, 3);
    const char* other = *p == ' ' ? p + 1 : p;
    const auto d = text.at(other);
    if (d.length != 0 && !d.is(kSpace | kLetter | kNumber)) {
      const char* q = text.run_without(other, kSpace | kLetter | kNumber);
      while (q < text.end() && (Classes::is_newline(*q) || *q == '/')) ++q;
      return q;
    }
    return match_spaces<true>(text, p);
  }
};

// kRest: what is between matches is kept too.
template <class Pattern, bool kRest = true>
class Scanner final : public Splitter {
 public:
  void split(std::string_view text, TextSpan whole, std::vector<TextSpan>& out) const override {
    const char* base = text.data();
    const Classes classes(base + whole.end);
    const auto emit = [&](const char* from, const char* to) {
      if (from != to) out.push_back({static_cast<uint32_t>(from - base), static_cast<uint32_t>(to - base)});
    };
    const char *p = base + whole.begin, *unmatched = p;
    while (p < classes.end()) {
      const char* q = Pattern::match(classes, p);
      if (q == p) {
        decode_valid_utf8(p);
        continue;
      }
      if (kRest) emit(unmatched, p);
      emit(p, q);
      p = unmatched = q;
    }
    if (kRest) emit(unmatched, p);
  }
};

class MarkSplitter final : public Splitter {
 public:
  explicit MarkSplitter(const std::array<bool, 256>& glued) : glued_(glued) {}

  void split(std::string_view text, TextSpan whole, std::vector<TextSpan>& out) const override {
    const std::string_view part = text.substr(whole.begin, whole.end - whole.begin);
    size_t begin = 0;
    for (size_t at = part.find(kSpaceMark, 1); at != std::string_view::npos;
         at = part.find(kSpaceMark, at + kSpaceMark.size())) {
      const bool after_mark =
          at >= kSpaceMark.size() && part.substr(at - kSpaceMark.size(), kSpaceMark.size()) == kSpaceMark;
      if (after_mark || glued_[static_cast<uint8_t>(part[at - 1])]) continue;
      out.push_back({static_cast<uint32_t>(whole.begin + begin), static_cast<uint32_t>(whole.begin + at)});
      begin = at;
    }
    if (begin < part.size()) out.push_back({static_cast<uint32_t>(whole.begin + begin), whole.end});
  }

 private:
  std::array<bool, 256> glued_;
};

}  // namespace

std::unique_ptr<Splitter> make_splitter(KnownPattern pattern) {
  switch (pattern) {
    case KnownPattern::kGpt2:
      return std::make_unique<Scanner<Gpt2>>();
    case KnownPattern::kClip:
      return std::make_unique<Scanner<Clip, false>>();
    case KnownPattern::kDigit:
      return std::make_unique<Scanner<Digits<1>>>();
    case KnownPattern::kDigits3:
      return std::make_unique<Scanner<Digits<3>>>();
    case KnownPattern::kLlama3:
      return std::make_unique<Scanner<Cl100k<3>>>();
    case KnownPattern::kQwen2:
      return std::make_unique<Scanner<Cl100k<1>>>();
    case KnownPattern::kDeepSeekCjk:
      return std::make_unique<Scanner<DeepSeekCjk>>();
    case KnownPattern::kDeepSeekV3:
      return std::make_unique<Scanner<DeepSeekV3>>();
    case KnownPattern::kO200k:
      return std::make_unique<Scanner<O200k>>();
  }
  return nullptr;
}

std::unique_ptr<Splitter> make_mark_splitter(const std::array<bool, 256>& glued) {
  return std::make_unique<MarkSplitter>(glued);
}

}  // namespace quire
