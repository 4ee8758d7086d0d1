// Any bytes as tokenizer.json: they load, or an Error says why not; what loads encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "fuzz_check.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = quire::tokenizer_from_json(source, "");
    for (const std::string_view text :
         {" Hello  w\xC3\xB6rld,\n 123 it's \xE4\xBD\xA0 a<s>b", "\xFF\xE2\x96\x81\x00"}) {
      const auto ids = tokenizer->encode(text, true);
      quire::fuzz::check(quire::is_valid_utf8(tokenizer->decode(ids, false)), "decode() gave invalid UTF-8");
    }
  } catch (const quire::Error& error) {
    quire::fuzz::check(error.what()[0] != '\0', "an error without words");
  }
  return 0;
}
