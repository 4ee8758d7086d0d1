// Any ids: the first byte picks a tokenizer, the second flags, then two bytes make one id. Text is valid, and what a
// stream shows, token by token, adds up; a stop string is never shown.
#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz_check.h"
#include "text/detokenizer.h"
#include "text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto& all = quire::fuzz::tokenizers();
  const quire::Tokenizer& tokenizer = *all[data[0] % all.size()];
  const bool skip_special = (data[1] & 1) != 0, with_stop = (data[1] & 2) != 0;
  std::vector<int32_t> ids;
  for (size_t i = 2; i + 1 < size; i += 2) ids.push_back(static_cast<int16_t>(data[i] | data[i + 1] << 8));

  quire::fuzz::check(quire::is_valid_utf8(tokenizer.decode(ids, skip_special)), "decode() gave invalid UTF-8");

  quire::Detokenizer::Options options;
  options.skip_special_tokens = skip_special;
  if (with_stop) options.stop = {"e ", "the", "\n"};
  quire::Detokenizer stream(tokenizer, options);
  std::string shown;
  bool stopped = false;
  for (const int32_t id : ids) {
    stopped = stream.push(id).has_value() || stopped;
    const std::string_view delta = stream.take();
    quire::fuzz::check(quire::is_valid_utf8(delta), "half a character was shown");
    shown += delta;
  }
  stream.finish();
  shown += stream.take();
  quire::fuzz::check(shown == stream.text(), "the pieces are not the text");
  for (const std::string& stop : options.stop) {
    quire::fuzz::check(shown.find(stop) == std::string::npos, "a stop string was shown");
  }
  return 0;
}
