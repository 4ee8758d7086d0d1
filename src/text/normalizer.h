#pragma once
// What happens to text before it is cut into words: a chain of NFC, literal replacements and prefixes.
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class Normalizer {
 public:
  struct Scratch {
    std::string buffers[2];
  };

  void add_nfc() { steps_.push_back({Kind::kNfc, {}, {}}); }
  void add_replace(std::string from, std::string to) {
    steps_.push_back({Kind::kReplace, std::move(from), std::move(to)});
  }
  void add_prepend(std::string prefix) { steps_.push_back({Kind::kPrepend, {}, std::move(prefix)}); }
  bool empty() const { return steps_.empty(); }

  // Normalizes valid UTF-8. The result is text itself or lies in scratch. Empty text stays empty.
  std::string_view apply(std::string_view text, Scratch& scratch) const;

 private:
  enum class Kind { kNfc, kReplace, kPrepend };
  struct Step {
    Kind kind;
    std::string from, to;
  };
  std::vector<Step> steps_;
};

}  // namespace quire
