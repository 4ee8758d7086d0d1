#include "text/jinja/strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "text/jinja/arena.h"
#include "text/unicode.h"

namespace quire::jinja {
namespace {

bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// The start of the character that ends at p; steps over one byte if that is not UTF-8.
const char* previous(const char* begin, const char* p) {
  const char* start = p - 1;
  while (start > begin && p - start < 4 && is_continuation(*start)) --start;
  const char* end = start;
  next_character(end, p);
  return end == p ? start : p - 1;
}

char32_t decode(std::string_view text) {
  const char* p = text.data();
  return next_character(p, p + text.size());
}

constexpr size_t kShortPart = 16;  // bytes of a part that may be looked for from the right one position after the other
constexpr size_t kMaxParts = Arena::kMaxBytes / 64;

void add_part(std::vector<std::string_view>& parts, std::string_view part) {
  if (parts.size() >= kMaxParts) fail(fmt::format("a string splits into more than {} parts", kMaxParts));
  parts.push_back(part);
}

template <class Drop>
std::string_view strip_if(std::string_view text, Side side, Drop&& drop) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (static_cast<int>(side) & static_cast<int>(Side::kLeft)) {
    while (begin < end) {
      const char* p = begin;
      if (!drop(next_character(p, end))) break;
      begin = p;
    }
  }
  if (static_cast<int>(side) & static_cast<int>(Side::kRight)) {
    while (begin < end) {
      const char* p = previous(begin, end);
      if (!drop(decode({p, static_cast<size_t>(end - p)}))) break;
      end = p;
    }
  }
  return {begin, static_cast<size_t>(end - begin)};
}

// The first byte at or after p that starts a character for which wanted() answers yes; end if none.
template <class Wanted>
const char* skip_until(const char* p, const char* end, Wanted&& wanted) {
  while (p < end) {
    const char* next = p;
    if (wanted(next_character(next, end))) return p;
    p = next;
  }
  return end;
}

bool is_line_end(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Takes the underscores out of a number; false if one does not stand between two digits.
bool drop_underscores(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || digit_value(text[i - 1]) > 35 || digit_value(text[i + 1]) > 35) {
      return false;
    }
  }
  return true;
}

}  // namespace

char32_t next_character(const char*& p, const char* end) {
  const auto lead = static_cast<uint8_t>(*p);
  if (lead < 0x80) {
    ++p;
    return lead;
  }
  const int length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  bool good = lead >= 0xC2 && lead <= 0xF4 && end - p >= length;
  for (int i = 1; good && i < length; ++i) good = is_continuation(p[i]);
  if (!good) {
    ++p;
    return 0xFFFD;
  }
  return decode_valid_utf8(p);
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += !is_continuation(byte);
  return count;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) {
    ++at;
    while (at < text.size() && is_continuation(text[at])) ++at;
  }
  return at;
}

std::string_view first_character(std::string_view text) { return text.substr(0, byte_offset(text, 1)); }

std::string_view strip(std::string_view text, Side side) { return strip_if(text, side, is_space); }

std::string_view strip(std::string_view text, std::string_view characters, Side side) {
  std::array<bool, 0x80> ascii{};
  std::u32string others;
  const char* const end = characters.data() + characters.size();
  for (const char* p = characters.data(); p < end;) {
    const char32_t code = next_character(p, end);
    if (code < ascii.size()) {
      ascii[code] = true;
    } else {
      others += code;
    }
  }
  std::sort(others.begin(), others.end());
  return strip_if(text, side, [&](char32_t code) {
    return code < ascii.size() ? ascii[code] : std::binary_search(others.begin(), others.end(), code);
  });
}

size_t find(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* at = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return at ? static_cast<size_t>(static_cast<const char*>(at) - text.data()) : std::string_view::npos;
}

size_t rfind(std::string_view text, std::string_view part) {
  if (part.size() <= kShortPart) return text.rfind(part);
  const std::string text_backwards(text.rbegin(), text.rend());
  const std::string part_backwards(part.rbegin(), part.rend());
  const size_t at = find(std::string_view(text_backwards), std::string_view(part_backwards));
  return at == std::string_view::npos ? at : text.size() - at - part.size();
}

size_t count_parts(std::string_view text, std::string_view part) {
  if (part.empty()) return count_characters(text) + 1;
  size_t count = 0;
  for (size_t at = find(text, part); at != std::string_view::npos; at = find(text, part, at + part.size())) ++count;
  return count;
}

std::string replace(std::string_view text, std::string_view old_part, std::string_view new_part, int64_t limit) {
  const auto wanted = limit < 0 ? SIZE_MAX : static_cast<size_t>(limit);
  const size_t count = std::min(count_parts(text, old_part), wanted);
  if (count == 0) return std::string(text);
  if (new_part.size() > old_part.size() && count > Arena::kMaxText / (new_part.size() - old_part.size())) {
    fail(fmt::format("a string is longer than {} MiB", Arena::kMaxText >> 20));
  }
  std::string out;
  out.reserve(text.size() - count * old_part.size() + count * new_part.size());
  size_t done = 0;
  for (size_t i = 0; i < count; ++i) {
    if (old_part.empty()) {
      out += new_part;
      if (done < text.size()) {
        const std::string_view character = first_character(text.substr(done));
        out += character;
        done += character.size();
      }
    } else {
      const size_t at = find(text, old_part, done);
      out += text.substr(done, at - done);
      out += new_part;
      done = at + old_part.size();
    }
  }
  out += text.substr(done);
  return out;
}

std::vector<std::string_view> split_space(std::string_view text, int64_t limit) {
  std::vector<std::string_view> out;
  const char* p = text.data();
  const char* const end = p + text.size();
  const auto space = [](char32_t code) { return is_space(code); };
  while ((p = skip_until(p, end, [](char32_t code) { return !is_space(code); })) < end) {
    if (limit >= 0 && out.size() >= static_cast<size_t>(limit)) {
      add_part(out, {p, static_cast<size_t>(end - p)});
      break;
    }
    const char* const word_end = skip_until(p, end, space);
    add_part(out, {p, static_cast<size_t>(word_end - p)});
    p = word_end;
  }
  return out;
}

std::vector<std::string_view> split_space_from_right(std::string_view text, int64_t limit) {
  std::vector<std::string_view> out;
  text = strip(text, Side::kRight);
  while (!text.empty()) {
    if (limit >= 0 && out.size() >= static_cast<size_t>(limit)) {
      add_part(out, text);
      break;
    }
    const std::string_view rest = [&] {
      const char* p = text.data() + text.size();
      while (p > text.data()) {
        const char* const start = previous(text.data(), p);
        if (is_space(decode({start, static_cast<size_t>(p - start)}))) break;
        p = start;
      }
      return text.substr(0, static_cast<size_t>(p - text.data()));
    }();
    add_part(out, text.substr(rest.size()));
    text = strip(rest, Side::kRight);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> out;
  size_t done = 0;
  while (limit < 0 || out.size() < static_cast<size_t>(limit)) {
    const size_t at = find(text, separator, done);
    if (at == std::string_view::npos) break;
    add_part(out, text.substr(done, at - done));
    done = at + separator.size();
  }
  add_part(out, text.substr(done));
  return out;
}

std::vector<std::string_view> split_from_right(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> out;
  const std::string text_backwards(text.rbegin(), text.rend());
  const std::string separator_backwards(separator.rbegin(), separator.rend());
  const std::string_view backwards = text_backwards;
  const std::string_view backwards_separator = separator_backwards;
  const size_t size = text.size();
  while (limit < 0 || out.size() < static_cast<size_t>(limit)) {
    const size_t at = find(backwards, backwards_separator, size - text.size());
    if (at == std::string_view::npos) break;
    const size_t begin = size - at - separator.size();
    add_part(out, text.substr(begin + separator.size()));
    text = text.substr(0, begin);
  }
  add_part(out, text);
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> out;
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const char* const line_end = skip_until(p, end, is_line_end);
    const char* next = line_end;
    if (next < end) {
      const char32_t code = next_character(next, end);
      if (code == '\r' && next < end && *next == '\n') ++next;
    }
    add_part(out, {p, static_cast<size_t>((keep_ends ? next : line_end) - p)});
    p = next;
  }
  return out;
}

void append_escape(std::string& out, char32_t code) {
  const int digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
  out += '\\';
  out += digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[code >> 4 * i & 15];
}

void append_quoted(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    if (out.size() > Arena::kMaxText) fail(fmt::format("a string is longer than {} MiB", Arena::kMaxText >> 20));
    const char* const start = p;
    const char32_t code = next_character(p, end);
    if (code == static_cast<char32_t>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (code >= 0x20 && code < 0x7F) {
      out += static_cast<char>(code);
    } else if (code >= 0x80 && is_printable(code)) {
      out.append(start, p);
    } else {
      append_escape(out, code);
    }
  }
  out += quote;
}

bool parse_real(std::string_view text, double& value) {
  std::string digits;
  if (!drop_underscores(strip(text, Side::kBoth), digits) || digits.empty()) return false;
  std::string_view number = digits;
  const bool negative = number[0] == '-';
  if (negative || number[0] == '+') number.remove_prefix(1);
  if (number.empty() || number[0] == '-' || number[0] == '+') return false;
  const std::from_chars_result end = std::from_chars(number.data(), number.data() + number.size(), value);
  if (end.ptr != number.data() + number.size()) return false;
  if (number.find('(') != std::string_view::npos) return false;  // nan(..) is C's, not Python's
  if (end.ec == std::errc::result_out_of_range) {
    const size_t exponent = number.find_first_of("eE");
    const bool tiny = exponent != std::string_view::npos && number[exponent + 1] == '-';
    value = tiny ? 0.0 : HUGE_VAL;
  } else if (end.ec != std::errc()) {
    return false;
  }
  if (negative) value = -value;
  return true;
}

IntegerParse parse_integer(std::string_view text, int base, int64_t& value) {
  std::string_view number = strip(text, Side::kBoth);
  bool negative = false;
  if (!number.empty() && (number[0] == '-' || number[0] == '+')) {
    negative = number[0] == '-';
    number.remove_prefix(1);
  }
  bool prefixed = false;
  if (number.size() > 2 && number[0] == '0') {
    const char letter = static_cast<char>(number[1] | 0x20);
    const int prefix_base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
      base = prefix_base;
      prefixed = true;
      number.remove_prefix(2);
      if (number[0] == '_') number.remove_prefix(1);
    }
  }
  const bool no_leading_zero = base == 0;
  if (base == 0) base = 10;
  std::string digits;
  if (number.empty() || !drop_underscores(number, digits)) return IntegerParse::kInvalid;
  uint64_t magnitude = 0;
  const uint64_t limit = negative ? uint64_t{1} << 63 : (uint64_t{1} << 63) - 1;
  bool too_large = false;
  for (const char c : digits) {
    const int digit = digit_value(c);
    if (digit >= base) return IntegerParse::kInvalid;
    if (magnitude > (limit - static_cast<uint64_t>(digit)) / static_cast<uint64_t>(base)) too_large = true;
    if (!too_large) magnitude = magnitude * static_cast<uint64_t>(base) + static_cast<uint64_t>(digit);
  }
  if (no_leading_zero && !prefixed && digits[0] == '0' && magnitude != 0) return IntegerParse::kInvalid;
  if (too_large) return IntegerParse::kTooLarge;
  value = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  return IntegerParse::kOk;
}

}  // namespace quire::jinja
