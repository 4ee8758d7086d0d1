#pragma once
// What tools/make_case_tables.py generates. Read through text/jinja/strings.h.
#include <cstddef>
#include <cstdint>

namespace quire::jinja {

// Characters first, first + stride, .. last map to themselves + delta.
struct CaseRun {
  uint32_t first, last, stride;
  int32_t delta;
};
// A character that maps to two or three.
struct CaseExpansion {
  uint32_t code;
  uint32_t target[3];  // ends at 0
};

extern const CaseRun kUpperRuns[], kLowerRuns[], kTitleRuns[];
extern const size_t kUpperRunCount, kLowerRunCount, kTitleRunCount;
extern const CaseExpansion kUpperExpansions[], kLowerExpansions[], kTitleExpansions[];
extern const size_t kUpperExpansionCount, kLowerExpansionCount, kTitleExpansionCount;

// Code points at which the class changes, from "no" at 0.
extern const uint32_t kPrintableToggles[], kDigitToggles[];
extern const size_t kPrintableTogglesCount, kDigitTogglesCount;

}  // namespace quire::jinja
