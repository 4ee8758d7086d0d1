#pragma once
// What the fuzz programs share: checks that end the program, and the tokenizers of the test data.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace quire::fuzz {

inline void check(bool holds, const char* otherwise) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", otherwise);
  std::abort();
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  check(static_cast<bool>(file), "the test data can't be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

// One of each kind. Made once, so never freed.
inline const std::vector<std::unique_ptr<Tokenizer>>& tokenizers() {
  static const auto& all = *[] {
    auto* loaded = new std::vector<std::unique_ptr<Tokenizer>>;
    for (const char* name : {"small", "sentencepiece", "bert", "t5", "xlmr", "clip", "scripts", "spelled"}) {
      const auto path = std::filesystem::path(QUIRE_TEST_DATA) / "text" / ("tokenizer_" + std::string(name) + ".json");
      loaded->push_back(tokenizer_from_json(read_file(path), ""));
    }
    return loaded;
  }();
  return all;
}

// Loads a tokenizer and puts a few texts through it; an Error with words may end that anywhere.
template <class Load>
void load_and_use(Load&& load) {
  try {
    const std::unique_ptr<Tokenizer> tokenizer = load();
    for (const std::string_view text :
         {" Hello  w\xC3\xB6rld,\n 123 it's \xE4\xBD\xA0 a<s>b", "\xFF\xE2\x96\x81\x00"}) {
      const auto ids = tokenizer->encode(text, true);
      check(is_valid_utf8(tokenizer->decode(ids, false)), "decode() gave invalid UTF-8");
    }
  } catch (const Error& error) {
    check(error.what()[0] != '\0', "an error without words");
  }
}

}  // namespace quire::fuzz
