#include <algorithm>
#include <utility>

#include "text/normalizer.h"
#include "text/regex.h"

namespace quire {
namespace {

class RegexReplaceStep final : public NormalizerStep {
 public:
  RegexReplaceStep(const std::string& pattern, std::string to) : regex_(pattern, "pattern"), to_(std::move(to)) {}

  std::string_view apply(std::string_view text, size_t limit, std::string& out) const override {
    Regex::Matcher matcher(regex_, text);
    size_t done = 0, begin = 0, end = 0;
    out.clear();
    while (done < text.size() && matcher.find(done, begin, end)) {
      out.append(text, done, begin - done).append(to_);
      check_normalized_size(out.size(), limit);
      done = end;
    }
    if (done == 0) return text;
    out.append(text, done);
    return out;
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
    size_t found = text.find("  ");
    if (found == std::string_view::npos) return text;
    out.clear();
    size_t done = 0;
    for (; found != std::string_view::npos; found = text.find("  ", done)) {
      out.append(text, done, found - done).append(to_);
      check_normalized_size(out.size(), limit);
      done = std::min(text.find_first_not_of(' ', found), text.size());
    }
    out.append(text, done);
    return out;
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
