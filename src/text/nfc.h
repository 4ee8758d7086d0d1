#pragma once
// Unicode normalization form C.
#include <string>
#include <string_view>

namespace quire {

// Normalizes valid UTF-8. O(n log n) in the longest run of combining marks, linear otherwise. Text that is already in
// form C for sure (no combining mark, nothing that composes or decomposes) is returned as it is, without a copy; else
// the result is in buffer.
std::string_view normalize_nfc(std::string_view text, std::string& buffer);

}  // namespace quire
