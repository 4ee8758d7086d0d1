// Pre-tokenizers that go by the class of each character.
#include <utility>

#include "text/char_sets.h"
#include "text/pre_tokenizer.h"
#include "text/split_behavior.h"
#include "text/unicode.h"

namespace quire {
namespace {

bool is_space(char32_t code) { return (CharTable::get()[code] & kSpace) != 0; }

// Each character that matches is a match of its own.
template <class Matches>
class CharacterSplitter final : public Splitter {
 public:
  CharacterSplitter(SplitBehavior behavior, Matches matches) : behavior_(behavior), matches_(std::move(matches)) {}

  void split(std::string_view text, TextSpan whole, std::vector<TextSpan>& out) const override {
    const char *base = text.data(), *end = base + whole.end;
    split_by(whole, behavior_, false, out, [&](uint32_t from, TextSpan& match) {
      for (const char* p = base + from; p < end;) {
        const char* begin = p;
        if (!matches_(decode_valid_utf8(p))) continue;
        match = {static_cast<uint32_t>(begin - base), static_cast<uint32_t>(p - base)};
        return true;
      }
      return false;
    });
  }

 private:
  SplitBehavior behavior_;
  Matches matches_;
};

template <class Matches>
std::unique_ptr<Splitter> make_character_splitter(SplitBehavior behavior, Matches matches) {
  return std::make_unique<CharacterSplitter<Matches>>(behavior, std::move(matches));
}

// Words without the white space between them; what of(code) says is the kind of a character: neighbours of one kind
// stay together, and characters of kind kAlone stand alone.
enum class Kind { kSpace, kWord, kOther, kAlone };

template <class Of>
class KindSplitter final : public Splitter {
 public:
  explicit KindSplitter(Of of) : of_(std::move(of)) {}

  void split(std::string_view text, TextSpan whole, std::vector<TextSpan>& out) const override {
    const char *base = text.data(), *p = base + whole.begin, *end = base + whole.end;
    Kind previous = Kind::kSpace;
    while (p < end) {
      const auto begin = static_cast<uint32_t>(p - base);
      const Kind kind = of_(decode_valid_utf8(p));
      const auto after = static_cast<uint32_t>(p - base);
      if (kind != Kind::kSpace) {
        if (kind == previous && kind != Kind::kAlone) {
          out.back().end = after;
        } else {
          out.push_back({begin, after});
        }
      }
      previous = kind;
    }
  }

 private:
  Of of_;
};

template <class Of>
std::unique_ptr<Splitter> make_kind_splitter(Of of) {
  return std::make_unique<KindSplitter<Of>>(std::move(of));
}

class ScriptSplitter final : public Splitter {
 public:
  void split(std::string_view text, TextSpan whole, std::vector<TextSpan>& out) const override {
    const char *base = text.data(), *p = base + whole.begin, *end = base + whole.end;
    int previous = kAnyScript;
    while (p < end) {
      const auto begin = static_cast<uint32_t>(p - base);
      const int script = script_of(decode_valid_utf8(p));
      const auto after = static_cast<uint32_t>(p - base);
      if (script != kAnyScript && script != previous) {
        out.push_back({begin, after});
        previous = script;
      } else if (previous != kAnyScript) {  // else nothing has begun: the reference drops spaces at the start
        out.back().end = after;
      }
    }
  }
};

class LengthSplitter final : public Splitter {
 public:
  explicit LengthSplitter(size_t characters) : characters_(characters) {}

  void split(std::string_view text, TextSpan whole, std::vector<TextSpan>& out) const override {
    const char *base = text.data(), *p = base + whole.begin, *end = base + whole.end;
    while (p < end) {
      const auto begin = static_cast<uint32_t>(p - base);
      for (size_t i = 0; i < characters_ && p < end; ++i) decode_valid_utf8(p);
      out.push_back({begin, static_cast<uint32_t>(p - base)});
    }
  }

 private:
  size_t characters_;
};

}  // namespace

std::unique_ptr<Splitter> make_script_splitter() { return std::make_unique<ScriptSplitter>(); }
std::unique_ptr<Splitter> make_length_splitter(size_t characters) {
  return std::make_unique<LengthSplitter>(characters);
}

std::unique_ptr<Splitter> make_white_space_splitter() {
  return make_kind_splitter([](char32_t code) { return is_space(code) ? Kind::kSpace : Kind::kWord; });
}

std::unique_ptr<Splitter> make_word_splitter() {
  return make_kind_splitter([&words = word_characters()](char32_t code) {
    return words.contains(code) ? Kind::kWord : is_space(code) ? Kind::kSpace : Kind::kOther;
  });
}

std::unique_ptr<Splitter> make_bert_splitter() {
  return make_kind_splitter([&punctuation = punctuation_characters()](char32_t code) {
    return is_space(code) ? Kind::kSpace : punctuation.contains(code) ? Kind::kAlone : Kind::kWord;
  });
}

std::unique_ptr<Splitter> make_punctuation_splitter(SplitBehavior behavior) {
  return make_character_splitter(
      behavior, [&punctuation = punctuation_characters()](char32_t code) { return punctuation.contains(code); });
}

std::unique_ptr<Splitter> make_digit_splitter(bool individual) {
  return make_character_splitter(individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                                 [&numeric = numeric_characters()](char32_t code) { return numeric.contains(code); });
}

}  // namespace quire
