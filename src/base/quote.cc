#include "base/quote.h"

#include <fmt/format.h>

#include <cstdint>

namespace quire {
namespace {

// The length of the character that begins text, 0 if it is no UTF-8.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xED && byte(1) >= 0xA0, beyond = lead == 0xF4 && byte(1) >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

}  // namespace

std::string quote(std::string_view text, size_t limit) {
  std::string out = "\"";
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = character_length(text.substr(at));
    if (at + (length == 0 ? 1 : length) > limit) break;
    const auto byte = static_cast<uint8_t>(text[at]);
    if (length == 0) {
      out += fmt::format("\\x{:02X}", byte);
    } else if (byte == '"' || byte == '\\') {
      out += {'\\', static_cast<char>(byte)};
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += text.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
  out += at < text.size() ? "\"..." : "\"";
  return out;
}

}  // namespace quire
