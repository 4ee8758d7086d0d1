#pragma once
// Sets and mappings of characters as Hugging Face tokenizers has them; where they are not the classes of
// text/unicode.h.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quire {

class CodeSet {
 public:
  // toggles: the code points at which membership changes, from "no" at 0; they must outlive the set.
  explicit CodeSet(std::span<const uint32_t> toggles);
  bool contains(char32_t code) const { return code < ascii_.size() ? ascii_[code] : contains_slow(code); }

 private:
  bool contains_slow(char32_t code) const;
  std::span<const uint32_t> toggles_;
  std::array<bool, 128> ascii_;
};

const CodeSet& word_characters();          // \w
const CodeSet& punctuation_characters();   // of BERT: all of ASCII's symbols, and what Unicode 8 calls punctuation
const CodeSet& numeric_characters();       // of the pre-tokenizer Digits
const CodeSet& bert_control_characters();  // dropped by BERT's clean_text
const CodeSet& bert_accents();             // dropped by BERT's strip_accents, after decomposition
const CodeSet& accents();                  // dropped by the normalizer StripAccents

// A number for each script, as the pre-tokenizer UnicodeScripts tells them apart: Japanese ones are Han, and spaces and
// characters without a script go with any.
inline constexpr int kAnyScript = 0;
int script_of(char32_t code);

void append_lower(std::string& out, char32_t code);

}  // namespace quire
