#include <algorithm>
#include <utility>

#include "text/normalizer.h"
#include "text/regex.h"
#include "text/replace.h"

namespace quire {
namespace {

class RegexReplaceStep final : public NormalizerStep {
 public:
  RegexReplaceStep(const std::string& pattern, std::string to) : regex_(pattern, "pattern"), to_(std::move(to)) {}

  std::string_view apply(std::string_view text, size_t limit, std::string& out) const override {
    Regex::Matcher matcher(regex_, text);
    return replace_matches(text, to_, limit, out,
                           [&](size_t at, size_t& begin, size_t& end) { return matcher.find(at, begin, end); });
  }

 private:
  Regex regex_;
  std::string to_;
};

// " {2,}", which files made from SentencePiece models have: linear without an engine.
class SpacesReplaceStep final : public NormalizerStep {
 public:
  explicit SpacesReplaceStep(std::string to) : to_(std::move(to)) {}

  std::string_view apply(std::string_view text, size_t limit, std::string& out) const override {
    return replace_matches(text, to_, limit, out, [&](size_t at, size_t& begin, size_t& end) {
      begin = text.find("  ", at);
      if (begin == std::string_view::npos) return false;
      end = std::min(text.find_first_not_of(' ', begin), text.size());
      return true;
    });
  }

 private:
  std::string to_;
};

}  // namespace

std::unique_ptr<NormalizerStep> make_regex_replace_step(const std::string& pattern, std::string to) {
  if (pattern == " {2,}") return std::make_unique<SpacesReplaceStep>(std::move(to));
  return std::make_unique<RegexReplaceStep>(pattern, std::move(to));
}

}  // namespace quire
