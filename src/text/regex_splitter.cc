// Pre-tokenizer patterns that no scanner knows, on PCRE2; and literal patterns.
#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/pre_tokenizer.h"
#include "text/unicode.h"

namespace quire {
namespace {

constexpr uint32_t kMatchLimit = 200'000;      // backtracking steps of one match
constexpr uint32_t kHeapLimitKib = 64 * 1024;  // memory of one match

// Adds one span, or joins it with the one before, as the behavior asks.
class SpanWriter {
 public:
  SpanWriter(SplitBehavior behavior, std::vector<TextSpan>& out) : behavior_(behavior), out_(out), first_(out.size()) {}

  void add(TextSpan span, bool is_match) {
    if (span.begin == span.end) return;
    const bool has_previous = out_.size() > first_;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (!is_match) out_.push_back(span);
        break;
      case SplitBehavior::kIsolated:
        out_.push_back(span);
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (is_match && has_previous && !previous_is_match_) {
          out_.back().end = span.end;
        } else {
          out_.push_back(span);
        }
        break;
      case SplitBehavior::kMergedWithNext:
        if (!is_match && has_previous && previous_is_match_) {
          out_.back().end = span.end;
        } else {
          out_.push_back(span);
        }
        break;
      case SplitBehavior::kContiguous:
        if (has_previous && previous_is_match_ == is_match) {
          out_.back().end = span.end;
        } else {
          out_.push_back(span);
        }
        break;
    }
    previous_is_match_ = is_match;
  }

 private:
  SplitBehavior behavior_;
  std::vector<TextSpan>& out_;
  size_t first_;
  bool previous_is_match_ = false;
};

// Walks over all matches: find(from, match) gives the first that starts at or after from, within the whole.
template <class Find>
void split_by(TextSpan whole, SplitBehavior behavior, bool invert, std::vector<TextSpan>& out, Find&& find) {
  SpanWriter writer(behavior, out);
  uint32_t done = whole.begin;
  for (TextSpan match; done < whole.end && find(done, match);) {
    writer.add({done, match.begin}, invert);
    writer.add(match, !invert);
    done = match.end;
  }
  writer.add({done, whole.end}, invert);
}

class RegexSplitter final : public Splitter {
 public:
  RegexSplitter(const std::string& pattern, SplitBehavior behavior, bool invert)
      : pattern_(pattern), behavior_(behavior), invert_(invert) {
    int code = 0;
    PCRE2_SIZE offset = 0;
    compiled_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr));
    if (!compiled_) {
      throw invalid_argument(
          fmt::format("pattern {:?} does not compile: {} at offset {}", pattern.substr(0, 200), message(code), offset),
          "pre_tokenizer");
    }
    context_.reset(pcre2_match_context_create(nullptr));
    if (!context_) throw std::bad_alloc();
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
  }

  void split(std::string_view text, TextSpan whole, std::vector<TextSpan>& out) const override {
    const std::unique_ptr<pcre2_match_data, Free> data(pcre2_match_data_create(1, nullptr));
    if (!data) throw std::bad_alloc();
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data() + whole.begin);
    const PCRE2_SIZE length = whole.end - whole.begin;
    split_by(whole, behavior_, invert_, out, [&](uint32_t from, TextSpan& match) {
      const int result = pcre2_match(compiled_.get(), subject, length, from - whole.begin,
                                     PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data.get(), context_.get());
      if (result == PCRE2_ERROR_NOMATCH) return false;
      if (result < 0) {
        throw invalid_argument(
            fmt::format("the text can't be split by the tokenizer's pattern {:?}: {} (limits: {} steps, {} KiB)",
                        pattern_.substr(0, 200), message(result), kMatchLimit, kHeapLimitKib),
            "prompt");
      }
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
      match = {static_cast<uint32_t>(whole.begin + ends[0]), static_cast<uint32_t>(whole.begin + ends[1])};
      return match.begin < match.end;  // \K could turn the two around
    });
  }

 private:
  struct Free {
    void operator()(pcre2_code* p) const { pcre2_code_free(p); }
    void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
    void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  };

  static std::string message(int code) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(code, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
  }

  std::string pattern_;
  SplitBehavior behavior_;
  bool invert_;
  std::unique_ptr<pcre2_code, Free> compiled_;
  std::unique_ptr<pcre2_match_context, Free> context_;
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
  // between, so removing that (behavior "removed" with invert, as some files have it) comes to the same.
  if (known != kKnown.end()) {
    const bool matches_all = known->pattern == KnownPattern::kGpt2 || known->pattern == KnownPattern::kLlama3 ||
                             known->pattern == KnownPattern::kQwen2 || known->pattern == KnownPattern::kO200k;
    if (behavior == SplitBehavior::kIsolated || (matches_all && invert && behavior == SplitBehavior::kRemoved)) {
      return make_splitter(known->pattern);
    }
  }
  return std::make_unique<RegexSplitter>(pattern, behavior, invert);
}

std::unique_ptr<Splitter> make_literal_splitter(const std::string& literal, SplitBehavior behavior, bool invert) {
  return std::make_unique<LiteralSplitter>(literal, behavior, invert);
}

const std::vector<TextSpan>& PreTokenizer::split(std::string_view text, Scratch& scratch) const {
  scratch.spans.clear();
  scratch.spans.push_back({0, static_cast<uint32_t>(text.size())});
  for (const auto& stage : stages_) {
    scratch.next.clear();
    for (const TextSpan span : scratch.spans) stage->split(text, span, scratch.next);
    scratch.spans.swap(scratch.next);
  }
  return scratch.spans;
}

}  // namespace quire
