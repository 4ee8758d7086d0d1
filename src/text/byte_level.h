#pragma once
// The byte-level alphabet of GPT-2 style vocabularies: each byte is spelled as one printable character of
// U+0021..U+0143.
#include <string>
#include <string_view>

namespace quire {

// Appends the bytes that a token's spelling stands for. False, with out unchanged, if a character is not of the
// alphabet.
bool append_byte_level_decoded(std::string& out, std::string_view spelling);

// The inverse: appends one character for each byte.
void append_byte_level_encoded(std::string& out, std::string_view bytes);

}  // namespace quire
