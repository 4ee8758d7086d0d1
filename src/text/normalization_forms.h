#pragma once
// Unicode normalization forms, as old as Hugging Face tokenizers has them (characters of Unicode 13 and later stay as
// they are).
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

enum class NormalizationForm : uint8_t { kC, kD, kKc, kKd };

// Normalizes valid UTF-8. O(n log n) in the longest run of combining marks, linear otherwise. Text that is in the form
// for sure (no combining mark, nothing that composes or decomposes) is returned as it is, without a copy; else the
// result is in buffer.
std::string_view normalize(std::string_view text, NormalizationForm form, std::string& buffer);

}  // namespace quire
