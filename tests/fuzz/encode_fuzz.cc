// Any bytes as text: the first one picks a tokenizer. Ids are in the vocabulary, the text repaired gives the same ids,
// and decoding gives valid text, the text itself where nothing is lost by design.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz_check.h"
#include "text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto& all = quire::fuzz::tokenizers();
  const quire::Tokenizer& tokenizer = *all[data[0] % all.size()];
  const bool is_byte_level = &tokenizer == all[0].get();
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);

  const std::vector<int32_t> ids = tokenizer.encode(text, false);
  const auto known = [&](int32_t id) { return id >= 0 && id < tokenizer.vocab_size(); };
  quire::fuzz::check(std::all_of(ids.begin(), ids.end(), known), "an id outside the vocabulary");

  std::string repaired;
  quire::append_lossy_utf8(repaired, text);
  quire::fuzz::check(tokenizer.encode(repaired, false) == ids, "the repaired text has other ids");

  const std::string decoded = tokenizer.decode(ids, false);
  quire::fuzz::check(quire::is_valid_utf8(decoded), "decode() gave invalid UTF-8");
  quire::fuzz::check(!is_byte_level || decoded == repaired, "a byte-level tokenizer lost text");
  return 0;
}
