#pragma once
// What the fuzz programs share: a check that ends the program, and the tokenizers of the test data.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

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
    for (const char* name : {"small", "sentencepiece", "bert", "t5", "xlmr"}) {
      const auto path = std::filesystem::path(QUIRE_TEST_DATA) / "text" / ("tokenizer_" + std::string(name) + ".json");
      loaded->push_back(tokenizer_from_json(read_file(path), ""));
    }
    return loaded;
  }();
  return all;
}

}  // namespace quire::fuzz
