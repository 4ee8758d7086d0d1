// Any bytes as tokenizer.json: they load, or an Error says why not; what loads encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  quire::fuzz::load_and_use([&] { return quire::tokenizer_from_json(source, ""); });
  return 0;
}
