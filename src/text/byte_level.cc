#include "text/byte_level.h"

#include <array>
#include <cstdint>

#include "text/unicode.h"

namespace quire {
namespace {

constexpr size_t kAlphabetEnd = 0x144;

struct Alphabet {
  std::array<uint16_t, 256> character{};
  std::array<int16_t, kAlphabetEnd> byte{};
};

// Printable Latin-1 bytes spell themselves; the others take U+0100, U+0101, ... in order.
constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& b : alphabet.byte) b = -1;
  uint16_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const uint16_t c = itself ? static_cast<uint16_t>(b) : next++;
    alphabet.character[b] = c;
    alphabet.byte[c] = static_cast<int16_t>(b);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

bool append_byte_level_decoded(std::string& out, std::string_view spelling) {
  const size_t before = out.size();
  for (size_t i = 0; i < spelling.size();) {
    const auto lead = static_cast<uint8_t>(spelling[i]);
    uint32_t code = lead;
    size_t length = 1;
    if (lead >= 0xC0 && lead < 0xE0 && i + 1 < spelling.size()) {  // the alphabet has no longer characters
      code = (lead & 0x1Fu) << 6 | (static_cast<uint8_t>(spelling[i + 1]) & 0x3Fu);
      length = 2;
    } else if (lead >= 0x80) {
      code = kAlphabetEnd;
    }
    if (code >= kAlphabetEnd || kAlphabet.byte[code] < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(kAlphabet.byte[code]);
    i += length;
  }
  return true;
}

void append_byte_level_encoded(std::string& out, std::string_view bytes) {
  for (const char b : bytes) append_utf8(out, kAlphabet.character[static_cast<uint8_t>(b)]);
}

}  // namespace quire
