#include <algorithm>
#include <span>

#include "text/jinja/case_tables.h"
#include "text/jinja/strings.h"
#include "text/unicode.h"

namespace quire::jinja {
namespace {

bool has_class(char32_t code, uint8_t classes) { return code <= 0x10FFFF && (CharTable::get()[code] & classes) != 0; }

bool in_toggles(std::span<const uint32_t> toggles, char32_t code) {
  return (std::upper_bound(toggles.begin(), toggles.end(), code) - toggles.begin()) % 2 == 1;
}

struct Mapping {
  std::span<const CaseRun> runs;
  std::span<const CaseExpansion> expansions;

  // Appends what code maps to; false if the table does not name it.
  bool append(std::string& out, char32_t code) const {
    const auto run =
        std::lower_bound(runs.begin(), runs.end(), code, [](const CaseRun& r, char32_t c) { return r.last < c; });
    if (run != runs.end() && code >= run->first && (code - run->first) % run->stride == 0) {
      append_utf8(out, static_cast<char32_t>(static_cast<int32_t>(code) + run->delta));
      return true;
    }
    const auto expansion = std::lower_bound(expansions.begin(), expansions.end(), code,
                                            [](const CaseExpansion& e, char32_t c) { return e.code < c; });
    if (expansion == expansions.end() || expansion->code != code) return false;
    for (const uint32_t part : expansion->target) {
      if (part != 0) append_utf8(out, part);
    }
    return true;
  }
};

const Mapping kUpperMapping{{kUpperRuns, kUpperRunCount}, {kUpperExpansions, kUpperExpansionCount}};
const Mapping kLowerMapping{{kLowerRuns, kLowerRunCount}, {kLowerExpansions, kLowerExpansionCount}};
const Mapping kTitleMapping{{kTitleRuns, kTitleRunCount}, {kTitleExpansions, kTitleExpansionCount}};

bool is_cased(char32_t code) { return has_class(code, kUpper | kLower); }
bool is_case_ignorable(char32_t code) {
  return has_class(code, kMark) || code == '\'' || code == '.' || code == ':' || code == '^' || code == '`' ||
         code == 0xA8 || code == 0xAD || code == 0xB7 || code == 0x2019;
}

// One character of a text, with its neighbours for the final sigma.
struct Position {
  std::string_view text;
  const char* at;
  const char* next;
  char32_t code;

  void append_original(std::string& out) const { out.append(at, next); }
};

bool is_final_sigma(const Position& position) {
  const char* const begin = position.text.data();
  const char* const end = begin + position.text.size();
  bool cased_before = false;
  for (const char* p = position.at; p > begin;) {
    do {
      --p;
    } while (p > begin && (static_cast<uint8_t>(*p) & 0xC0) == 0x80);
    const char* q = p;
    const char32_t code = next_character(q, end);
    if (is_case_ignorable(code)) continue;
    cased_before = is_cased(code);
    break;
  }
  if (!cased_before) return false;
  for (const char* p = position.next; p < end;) {
    const char32_t code = next_character(p, end);
    if (!is_case_ignorable(code)) return !is_cased(code);
  }
  return true;
}

void append_lower(std::string& out, const Position& position) {
  if (position.code < 0x80) {
    out += static_cast<char>(position.code >= 'A' && position.code <= 'Z' ? position.code + 32 : position.code);
  } else if (position.code == 0x3A3) {
    append_utf8(out, is_final_sigma(position) ? 0x3C2 : 0x3C3);
  } else if (!kLowerMapping.append(out, position.code)) {
    position.append_original(out);
  }
}

void append_upper(std::string& out, const Position& position) {
  if (position.code < 0x80) {
    out += static_cast<char>(position.code >= 'a' && position.code <= 'z' ? position.code - 32 : position.code);
  } else if (!kUpperMapping.append(out, position.code)) {
    position.append_original(out);
  }
}

void append_title(std::string& out, const Position& position) {
  if (position.code < 0x80 || !kTitleMapping.append(out, position.code)) append_upper(out, position);
}

template <class Append>
std::string map_characters(std::string_view text, Append&& append) {
  std::string out;
  out.reserve(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const char* const at = p;
    const char32_t code = next_character(p, end);
    append(out, Position{text, at, p, code});
  }
  return out;
}

}  // namespace

bool is_space(char32_t code) {
  if (code < 0x80) return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20);
  return has_class(code, kSpace);
}
bool is_printable(char32_t code) { return in_toggles({kPrintableToggles, kPrintableTogglesCount}, code); }
bool is_digit(char32_t code) { return in_toggles({kDigitToggles, kDigitTogglesCount}, code); }
bool is_alpha(char32_t code) { return has_class(code, kLetter); }
bool is_numeric(char32_t code) { return has_class(code, kNumber); }
bool is_word(char32_t code) { return code == '_' || has_class(code, kLetter | kNumber); }
bool is_upper(char32_t code) { return has_class(code, kUpper); }
bool is_lower(char32_t code) { return has_class(code, kLower); }

std::string to_upper(std::string_view text) { return map_characters(text, append_upper); }

std::string to_lower(std::string_view text) { return map_characters(text, append_lower); }

std::string capitalize(std::string_view text) {
  return map_characters(text, [first = true](std::string& out, const Position& position) mutable {
    first ? append_title(out, position) : append_lower(out, position);
    first = false;
  });
}

std::string to_title(std::string_view text) {
  return map_characters(text, [inside = false](std::string& out, const Position& position) mutable {
    inside ? append_lower(out, position) : append_title(out, position);
    inside = is_cased(position.code);
  });
}

std::string swap_case(std::string_view text) {
  return map_characters(text, [](std::string& out, const Position& position) {
    if (is_upper(position.code)) {
      append_lower(out, position);
    } else {
      append_upper(out, position);
    }
  });
}

}  // namespace quire::jinja
