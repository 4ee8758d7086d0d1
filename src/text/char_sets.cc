#include "text/char_sets.h"

#include <algorithm>

#include "text/char_tables.h"
#include "text/unicode.h"

namespace quire {

CodeSet::CodeSet(std::span<const uint32_t> toggles) : toggles_(toggles) {
  for (size_t code = 0; code < ascii_.size(); ++code) ascii_[code] = contains_slow(static_cast<char32_t>(code));
}

bool CodeSet::contains_slow(char32_t code) const {
  return (std::upper_bound(toggles_.begin(), toggles_.end(), code) - toggles_.begin()) % 2 == 1;
}

const CodeSet& word_characters() {
  static const CodeSet set({kWordToggles, kWordTogglesCount});
  return set;
}
const CodeSet& punctuation_characters() {
  static const CodeSet set({kPunctuationToggles, kPunctuationTogglesCount});
  return set;
}
const CodeSet& numeric_characters() {
  static const CodeSet set({kNumericToggles, kNumericTogglesCount});
  return set;
}
const CodeSet& bert_control_characters() {
  static const CodeSet set({kBertControlToggles, kBertControlTogglesCount});
  return set;
}
const CodeSet& bert_accents() {
  static const CodeSet set({kBertAccentToggles, kBertAccentTogglesCount});
  return set;
}
const CodeSet& accents() {
  static const CodeSet set({kAccentToggles, kAccentTogglesCount});
  return set;
}

int script_of(char32_t code) {
  constexpr int kScriptBits = 8;
  const uint32_t* const end = kScriptRuns + kScriptRunsCount;
  const uint32_t* const next = std::upper_bound(kScriptRuns, end, static_cast<uint32_t>(code) << kScriptBits | 0xFF);
  return next == kScriptRuns ? kAnyScript : static_cast<int>(next[-1] & 0xFF);
}

void append_lower(std::string& out, char32_t code) {
  constexpr char32_t kCapitalIWithDot = 0x130, kDotAbove = 0x307;
  if (code < 0x80) {
    out += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
    return;
  }
  if (code == kCapitalIWithDot) {
    out += 'i';
    append_utf8(out, kDotAbove);
    return;
  }
  const CaseRun* end = kLowerRuns + kLowerRunsCount;
  const CaseRun* run = std::lower_bound(kLowerRuns, end, code, [](const CaseRun& r, char32_t c) { return r.last < c; });
  if (run != end && code >= run->first && (code - run->first) % run->stride == 0) {
    code = static_cast<char32_t>(static_cast<int32_t>(code) + run->delta);
  }
  append_utf8(out, code);
}

}  // namespace quire
