#pragma once
// What tools/make_char_tables.py generates. Read through text/char_sets.h, text/normalization_forms.h and
// text/graphemes.h.
#include <cstddef>
#include <cstdint>

namespace quire {

// Code points at which membership changes, from "no" at 0.
extern const uint32_t kWordToggles[], kPunctuationToggles[], kNumericToggles[], kBertControlToggles[],
    kBertAccentToggles[], kAccentToggles[];
extern const size_t kWordTogglesCount, kPunctuationTogglesCount, kNumericTogglesCount, kBertControlTogglesCount,
    kBertAccentTogglesCount, kAccentTogglesCount;

// Characters first, first + stride, .. last have the lower case themselves + delta.
struct CaseRun {
  uint32_t first, last, stride;
  int32_t delta;
};
extern const CaseRun kLowerRuns[];
extern const size_t kLowerRunsCount;

// The full compatibility decomposition of a character, where it isn't the canonical one: length codes of the pool.
struct Compatibility {
  uint32_t code, begin, length;
};
extern const Compatibility kCompatibility[];
extern const size_t kCompatibilityCount;
extern const uint32_t kCompatibilityPool[];
extern const size_t kCompatibilityPoolCount;

extern const uint32_t kScriptRuns[];  // code << 8 | number of the script, kAnyScript at 0
extern const size_t kScriptRunsCount;

extern const uint32_t kBreakRuns[];  // code << 8 | enum Break of graphemes.cc, from 0 at 0
extern const size_t kBreakRunsCount;

}  // namespace quire
