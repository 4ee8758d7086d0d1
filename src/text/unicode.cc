#include "text/unicode.h"

#include <simdjson.h>

#include <algorithm>

#include "text/unicode_tables.h"

namespace quire {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What may follow a lead byte: the number of continuation bytes (0: not a lead byte) and the range of the first of
// them.
struct Lead {
  int continuations;
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0xC2 || byte > 0xF4) return {0, 0, 0};
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {3, 0x80, 0xBF};
}

}  // namespace

CharTable::CharTable() {
  // Pages that lie inside one run are shared by class; the others are filled run by run.
  std::array<uint16_t, 256> uniform;
  uniform.fill(UINT16_MAX);
  size_t run = 0;
  for (uint32_t page = 0; page < page_of_.size(); ++page) {
    const uint32_t first = page << 8, last = first | 255;
    const auto run_end = [&] { return run + 1 < kCharClassRunCount ? kCharClassRuns[run + 1] >> 8 : 0x110000; };
    while (run_end() <= first) ++run;
    const auto value = static_cast<uint8_t>(kCharClassRuns[run]);
    const bool one_run = run_end() > last;
    if (one_run && uniform[value] != UINT16_MAX) {
      page_of_[page] = uniform[value];
      continue;
    }
    page_of_[page] = static_cast<uint16_t>(pages_.size() >> 8);
    if (one_run) uniform[value] = page_of_[page];
    for (uint32_t code = first; code <= last; ++code) {
      while (run_end() <= code) ++run;
      pages_.push_back(static_cast<uint8_t>(kCharClassRuns[run]));
    }
  }
}

const CharTable& CharTable::get() {
  static const CharTable table;
  return table;
}

bool is_valid_utf8(std::string_view bytes) { return simdjson::validate_utf8(bytes.data(), bytes.size()); }

void append_utf8(std::string& out, char32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += tail(6);
    out += tail(0);
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += tail(12);
    out += tail(6);
    out += tail(0);
  }
}

size_t append_lossy_utf8(std::string& out, std::string_view bytes, bool more_follow) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t ascii = at;
    while (at < bytes.size() && static_cast<uint8_t>(bytes[at]) < 0x80) ++at;
    out.append(bytes, ascii, at - ascii);
    if (at == bytes.size()) break;

    const Lead lead = lead_of(static_cast<uint8_t>(bytes[at]));
    size_t length = 1;
    uint8_t low = lead.low, high = lead.high;
    while (static_cast<int>(length) <= lead.continuations && at + length < bytes.size()) {
      const auto byte = static_cast<uint8_t>(bytes[at + length]);
      if (byte < low || byte > high) break;
      low = 0x80;
      high = 0xBF;
      ++length;
    }
    const bool complete = lead.continuations > 0 && static_cast<int>(length) > lead.continuations;
    if (complete) {
      out.append(bytes, at, length);
    } else if (more_follow && lead.continuations > 0 && at + length == bytes.size()) {
      return length;
    } else {
      out += kReplacement;
    }
    at += length;
  }
  return 0;
}

}  // namespace quire
