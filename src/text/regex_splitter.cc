// Pre-tokenizer patterns that no scanner knows, on PCRE2; and literal patterns.
#include <algorithm>
#include <array>
#include <utility>

#include "text/pre_tokenizer.h"
#include "text/regex.h"
#include "text/split_behavior.h"

namespace quire {
namespace {

class RegexSplitter final : public Splitter {
 public:
  RegexSplitter(const std::string& pattern, SplitBehavior behavior, bool invert)
      : regex_(pattern, "pre_tokenizer"), behavior_(behavior), invert_(invert) {}

  void split(std::string_view text, TextSpan whole, std::vector<TextSpan>& out) const override {
    Regex::Matcher matcher(regex_, text.substr(whole.begin, whole.end - whole.begin));
    split_by(whole, behavior_, invert_, out, [&](uint32_t from, TextSpan& match) {
      size_t begin = 0, end = 0;
      if (!matcher.find(from - whole.begin, begin, end)) return false;
      match = {static_cast<uint32_t>(whole.begin + begin), static_cast<uint32_t>(whole.begin + end)};
      return true;
    });
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
};

class LiteralSplitter final : public Splitter {
 public:
  LiteralSplitter(std::string literal, SplitBehavior behavior, bool invert)
      : literal_(std::move(literal)), behavior_(behavior), invert_(invert) {}

  void split(std::string_view text, TextSpan whole, std::vector<TextSpan>& out) const override {
    const std::string_view part = text.substr(0, whole.end);
    split_by(whole, behavior_, invert_, out, [&](uint32_t from, TextSpan& match) {
      const size_t found = literal_.empty() ? std::string_view::npos : part.find(literal_, from);
      if (found == std::string_view::npos) return false;
      match = {static_cast<uint32_t>(found), static_cast<uint32_t>(found + literal_.size())};
      return true;
    });
  }

 private:
  std::string literal_;
  SplitBehavior behavior_;
  bool invert_;
};

struct Known {
  std::string_view source;
  KnownPattern pattern;
};

constexpr std::array kKnown = {
    Known{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", KnownPattern::kGpt2},
    Known{R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)", KnownPattern::kClip},
    Known{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
          R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          KnownPattern::kLlama3},
    Known{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
          R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          KnownPattern::kQwen2},
    Known{R"(\p{N}{1,3})", KnownPattern::kDigits3},
    Known{R"(\p{N})", KnownPattern::kDigit},
    Known{"[一-龥\u3040-ゟ゠-ヿ]+", KnownPattern::kDeepSeekCjk},
    Known{"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
          "?[\\p{P}\\p{S}]+[\r\n]*"
          "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
          KnownPattern::kDeepSeekV3},
    Known{
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
        R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
        R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        KnownPattern::kO200k},
};

}  // namespace

std::unique_ptr<Splitter> make_regex_splitter(const std::string& pattern, SplitBehavior behavior, bool invert) {
  const auto same = [&](const Known& known) { return known.source == pattern; };
  const auto known = std::find_if(kKnown.begin(), kKnown.end(), same);
  // The scanners keep matches and what is between as parts of their own. A pattern that matches everything has nothing
  // between, so removing that (behavior "removed" with invert, as some files have it) comes to the same. CLIP's removes
  // what is between, which is how its files have it.
  if (known != kKnown.end()) {
    const bool keeps_matches_only = invert && behavior == SplitBehavior::kRemoved;
    if (known->pattern == KnownPattern::kClip && keeps_matches_only) return make_splitter(known->pattern);
    const bool matches_all = known->pattern == KnownPattern::kGpt2 || known->pattern == KnownPattern::kLlama3 ||
                             known->pattern == KnownPattern::kQwen2 || known->pattern == KnownPattern::kO200k;
    const bool keeps_all = behavior == SplitBehavior::kIsolated && known->pattern != KnownPattern::kClip;
    if (keeps_all || (matches_all && keeps_matches_only)) {
      return make_splitter(known->pattern);
    }
  }
  return std::make_unique<RegexSplitter>(pattern, behavior, invert);
}

std::unique_ptr<Splitter> make_literal_splitter(const std::string& literal, SplitBehavior behavior, bool invert) {
  return std::make_unique<LiteralSplitter>(literal, behavior, invert);
}

}  // namespace quire
