#include "text/graphemes.h"

#include <algorithm>
#include <cstdint>

#include "text/char_tables.h"
#include "text/unicode.h"

namespace quire {
namespace {

// In the order of tools/make_char_tables.py.
enum Break : uint8_t {
  kOther,
  kControl,
  kCarriageReturn,
  kLineFeed,
  kExtend,
  kJoiner,
  kSpacingMark,
  kPrepend,
  kHangulL,
  kHangulV,
  kHangulT,
  kHangulLv,
  kHangulLvt,
  kRegionalIndicator,
  kPictographic,
};

Break break_of(char32_t code) {
  if (code >= 0x20 && code < 0x7F) return kOther;
  const uint32_t* end = kBreakRuns + kBreakRunsCount;
  const uint32_t* after = std::upper_bound(kBreakRuns, end, static_cast<uint32_t>(code << 8 | 255));
  return after == kBreakRuns ? kOther : static_cast<Break>(*(after - 1) & 255);
}

bool is_control(Break b) { return b == kControl || b == kCarriageReturn || b == kLineFeed; }

// Rules GB3 to GB9b between two neighbours.
bool joins(Break left, Break right) {
  if (left == kCarriageReturn) return right == kLineFeed;
  if (is_control(left) || is_control(right)) return false;
  if (right == kExtend || right == kJoiner || right == kSpacingMark || left == kPrepend) return true;
  if (left == kHangulL) return right == kHangulL || right == kHangulV || right == kHangulLv || right == kHangulLvt;
  if (left == kHangulLv || left == kHangulV) return right == kHangulV || right == kHangulT;
  return (left == kHangulLvt || left == kHangulT) && right == kHangulT;
}

}  // namespace

const char* grapheme_end(const char* p, const char* end) {
  Break left = break_of(decode_valid_utf8(p));
  bool after_pictograph = left == kPictographic, odd_indicators = left == kRegionalIndicator;
  while (p < end) {
    const char* next = p;
    const char32_t code = decode_valid_utf8(next);
    const Break right = break_of(code);
    const bool emoji = left == kJoiner && right == kPictographic && after_pictograph;               // GB11
    const bool flag = left == kRegionalIndicator && right == kRegionalIndicator && odd_indicators;  // GB12, GB13
    if (!joins(left, right) && !emoji && !flag) return p;
    odd_indicators = right == kRegionalIndicator && !odd_indicators;
    after_pictograph = right == kPictographic || (after_pictograph && (right == kExtend || right == kJoiner));
    left = right;
    p = next;
  }
  return p;
}

}  // namespace quire
