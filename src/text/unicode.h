#pragma once
// UTF-8 and the character classes that pre-tokenizer patterns ask about (Unicode 16).
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Bits of a character's class. Lt counts as upper case; Lm and Lo are kOtherLetter; classes Z and C have no bit of
// their own.
enum CharClass : uint8_t {
  kUpper = 1,
  kLower = 2,
  kOtherLetter = 4,
  kLetter = kUpper | kLower | kOtherLetter,
  kMark = 8,
  kNumber = 16,
  kPunctuation = 32,
  kSymbol = 64,
  kSpace = 128,  // White_Space, which is \s
};

// Class of every code point: 256-entry pages, equal pages shared.
class CharTable {
 public:
  static const CharTable& get();  // made on first use, some tens of microseconds
  uint8_t operator[](char32_t code) const {
    return pages_[page_of_[code >> 8] << 8 | (code & 255)];
  }  // code <= 0x10FFFF

 private:
  CharTable();
  std::array<uint16_t, 0x1100> page_of_;
  std::vector<uint8_t> pages_;
};

// Decodes the character that starts at p and moves p past it. The bytes must be valid UTF-8.
inline char32_t decode_valid_utf8(const char*& p) {
  const auto byte = [&](int i) { return static_cast<uint8_t>(p[i]); };
  const auto tail = [&](int i) { return static_cast<char32_t>(byte(i) & 0x3F); };
  const uint8_t lead = byte(0);
  char32_t code = lead;
  if (lead < 0x80) {
    p += 1;
  } else if (lead < 0xE0) {
    code = (lead & 0x1Fu) << 6 | tail(1);
    p += 2;
  } else if (lead < 0xF0) {
    code = (lead & 0x0Fu) << 12 | tail(1) << 6 | tail(2);
    p += 3;
  } else {
    code = (lead & 0x07u) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
    p += 4;
  }
  return code;
}

// The start of the character that ends at p (begin < p, valid UTF-8).
inline const char* previous_character(const char* begin, const char* p) {
  do {
    --p;
  } while (p > begin && (static_cast<uint8_t>(*p) & 0xC0) == 0x80);
  return p;
}

bool is_valid_utf8(std::string_view bytes);

void append_utf8(std::string& out, char32_t code);  // code is a scalar value

// Appends bytes to out, each maximal subpart of an ill-formed sequence as one U+FFFD. Returns how many bytes at the end
// (0 to 3) were left out because more bytes could complete them; with more_follow = false they become U+FFFD and 0 is
// returned.
size_t append_lossy_utf8(std::string& out, std::string_view bytes, bool more_follow = false);

}  // namespace quire
