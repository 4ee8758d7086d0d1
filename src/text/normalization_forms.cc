#include "text/normalization_forms.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "text/char_tables.h"
#include "text/unicode.h"
#include "text/unicode_tables.h"

namespace quire {
namespace {

constexpr char32_t kSBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr uint32_t kLCount = 19, kVCount = 21, kTCount = 28, kSCount = kLCount * kVCount * kTCount;
constexpr char32_t kFirstAffected = 0x300;  // below it every character is its own form C and never combines to the left

class FormTables {
 public:
  static const FormTables& get() {
    static const FormTables tables;
    return tables;
  }

  uint8_t combining_class(char32_t code) const {
    if (code < kFirstAffected) return 0;
    const uint32_t* end = kCombiningRuns + kCombiningRunsCount;
    const auto key = static_cast<uint32_t>(code << 8 | 255);
    return static_cast<uint8_t>(*(std::upper_bound(kCombiningRuns, end, key) - 1));
  }

  const Decomposition* decomposition(char32_t code) const {
    const Decomposition* end = kDecompositions + kDecompositionsCount;
    const Decomposition* found =
        std::lower_bound(kDecompositions, end, code, [](const Decomposition& d, char32_t c) { return d.code < c; });
    return found != end && found->code == code ? found : nullptr;
  }

  // The primary composite of a pair, 0 if there is none.
  char32_t compose(char32_t first, char32_t second) const {
    if (first >= kLBase && first < kLBase + kLCount && second >= kVBase && second < kVBase + kVCount)
      return kSBase + ((first - kLBase) * kVCount + (second - kVBase)) * kTCount;
    if (first >= kSBase && first < kSBase + kSCount && (first - kSBase) % kTCount == 0 && second > kTBase &&
        second < kTBase + kTCount)
      return first + (second - kTBase);
    const auto found = composites_.find(pair_key(first, second));
    return found == composites_.end() ? 0 : found->second;
  }

  // May this character change in form C, or combine with one to its left?
  bool affected(char32_t code) const {
    if (code < kFirstAffected) return false;
    return std::binary_search(affected_.begin(), affected_.end(), code) || combining_class(code) != 0;
  }

  const Compatibility* compatibility(char32_t code) const {
    const Compatibility* end = kCompatibility + kCompatibilityCount;
    const Compatibility* found = std::lower_bound(
        kCompatibility, end, code, [](const Compatibility& c, char32_t wanted) { return c.code < wanted; });
    return found != end && found->code == code ? found : nullptr;
  }

 private:
  FormTables() {
    for (size_t i = 0; i < kDecompositionsCount; ++i) {
      const Decomposition& d = kDecompositions[i];
      if (d.composes) {
        composites_.emplace(pair_key(d.first, d.second), d.code);
        affected_.push_back(d.second);
      } else {
        affected_.push_back(d.code);
      }
    }
    for (uint32_t i = 0; i < kVCount; ++i) affected_.push_back(kVBase + i);
    for (uint32_t i = 1; i < kTCount; ++i) affected_.push_back(kTBase + i);
    std::sort(affected_.begin(), affected_.end());
  }
  static uint64_t pair_key(char32_t first, char32_t second) { return static_cast<uint64_t>(first) << 32 | second; }

  std::unordered_map<uint64_t, char32_t> composites_;
  std::vector<char32_t> affected_;  // sorted
};

struct Character {
  char32_t code;
  uint8_t combining_class;
};

void decompose(const FormTables& tables, char32_t code, bool compatibility, std::vector<Character>& out) {
  if (compatibility) {
    if (const Compatibility* c = tables.compatibility(code)) {
      for (uint32_t i = 0; i < c->length; ++i) {
        const char32_t part = kCompatibilityPool[c->begin + i];
        out.push_back({part, tables.combining_class(part)});
      }
      return;
    }
  }
  if (code >= kSBase && code < kSBase + kSCount) {
    const uint32_t index = code - kSBase;
    out.push_back({kLBase + index / (kVCount * kTCount), 0});
    out.push_back({kVBase + index % (kVCount * kTCount) / kTCount, 0});
    if (index % kTCount != 0) out.push_back({kTBase + index % kTCount, 0});
  } else if (const Decomposition* d = tables.decomposition(code)) {
    decompose(tables, d->first, false, out);
    if (d->second != 0)
      out.push_back({d->second, tables.combining_class(d->second)});  // a second part never decomposes
  } else {
    out.push_back({code, tables.combining_class(code)});
  }
}

void order_marks(std::vector<Character>& characters) {
  for (auto at = characters.begin(); at != characters.end();) {
    if (at->combining_class == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, characters.end(), [](const Character& c) { return c.combining_class == 0; });
    std::stable_sort(at, end,
                     [](const Character& a, const Character& b) { return a.combining_class < b.combining_class; });
    at = end;
  }
}

void compose(const FormTables& tables, std::vector<Character>& characters) {
  constexpr size_t kNone = SIZE_MAX;
  size_t written = 0, starter = kNone;
  for (size_t i = 0; i < characters.size(); ++i) {
    const Character next = characters[i];
    if (starter != kNone) {
      // Blocked if something between has the same or a higher class, or is a starter itself.
      const bool adjacent = starter + 1 == written;
      const bool blocked = !adjacent && characters[written - 1].combining_class >= next.combining_class;
      if (!blocked) {
        if (const char32_t composite = tables.compose(characters[starter].code, next.code)) {
          characters[starter].code = composite;
          continue;
        }
      }
    }
    if (next.combining_class == 0) starter = written;
    characters[written++] = next;
  }
  characters.resize(written);
}

// The first lead byte of a character that may change: below U+0300 nothing does in form C, below U+00C0 in D, below
// U+00A0 in KC and KD.
const char* first_lead(std::string_view text, NormalizationForm form) {
  const uint8_t lead = form == NormalizationForm::kC ? 0xCC : form == NormalizationForm::kD ? 0xC3 : 0xC2;
  return std::find_if(text.begin(), text.end(), [&](char c) { return static_cast<uint8_t>(c) >= lead; });
}

std::string_view composed(std::string_view text, bool compatibility, std::string& buffer) {
  const FormTables& tables = FormTables::get();
  const auto affected = [&](char32_t code) {
    return tables.affected(code) || (compatibility && tables.compatibility(code) != nullptr);
  };
  const char *begin = text.data(), *end = begin + text.size();
  buffer.clear();
  std::vector<Character> segment;
  const char* copied = begin;    // text before it is in buffer
  const char* boundary = begin;  // start of the last character that nothing to its left can change
  bool changed = false;
  for (const char* p = begin; p < end;) {
    const char* start = p;
    if (!affected(decode_valid_utf8(p))) {
      boundary = start;
      continue;
    }
    // Everything from the boundary to the next character that is not affected is normalized as one piece.
    while (p < end) {
      const char* next = p;
      if (!affected(decode_valid_utf8(next))) break;
      p = next;
    }
    buffer.append(copied, boundary);
    segment.clear();
    for (const char* q = boundary; q < p;) decompose(tables, decode_valid_utf8(q), compatibility, segment);
    order_marks(segment);
    compose(tables, segment);
    for (const Character& c : segment) append_utf8(buffer, c.code);
    copied = boundary = p;
    changed = true;
  }
  if (!changed) return text;
  buffer.append(copied, end);
  return buffer;
}

std::string_view decomposed(std::string_view text, bool compatibility, std::string& buffer) {
  const FormTables& tables = FormTables::get();
  buffer.clear();
  std::vector<Character> segment, next;  // what marks may still join, and the character that follows
  const auto flush = [&] {
    order_marks(segment);
    for (const Character& c : segment) append_utf8(buffer, c.code);
    segment.clear();
  };
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    next.clear();
    decompose(tables, decode_valid_utf8(p), compatibility, next);
    if (next.front().combining_class == 0) flush();
    segment.insert(segment.end(), next.begin(), next.end());
  }
  flush();
  return buffer;
}

}  // namespace

std::string_view normalize(std::string_view text, NormalizationForm form, std::string& buffer) {
  if (first_lead(text, form) == text.end()) return text;
  const bool compatibility = form == NormalizationForm::kKc || form == NormalizationForm::kKd;
  const bool composes = form == NormalizationForm::kC || form == NormalizationForm::kKc;
  return composes ? composed(text, compatibility, buffer) : decomposed(text, compatibility, buffer);
}

}  // namespace quire
