#pragma once
// What tools/make_unicode_tables.py and tools/make_char_tables.py generate. Read through text/unicode.h and
// text/normalization_forms.h.
#include <cstddef>
#include <cstdint>

namespace quire {

extern const uint32_t kCharClassRuns[];  // code << 8 | class, one for each run of equal classes, by rising code
extern const size_t kCharClassRunCount;

extern const uint32_t kCombiningRuns[];  // code << 8 | canonical combining class
extern const size_t kCombiningRunsCount;

struct Decomposition {
  uint32_t code, first, second;  // second 0: a singleton
  bool composes;                 // (first, second) composes back to code
};
extern const Decomposition kDecompositions[];  // canonical ones without Hangul, by rising code
extern const size_t kDecompositionsCount;

}  // namespace quire
