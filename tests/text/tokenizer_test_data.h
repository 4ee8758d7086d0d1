#pragma once
// Files that the tokenizer tests read.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace quire::testing {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("can't read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string read_data(const std::string& name) {
  return read_file(std::filesystem::path(QUIRE_TEST_DATA) / "text" / name);
}

inline nlohmann::json read_json_data(const std::string& name) { return nlohmann::json::parse(read_data(name)); }

// The text of path, or of path.xz.
inline std::string read_maybe_compressed(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) return read_file(path);
  const std::string command = "xz -dc '" + path.string() + ".xz'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) throw std::runtime_error("can't run " + command);
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) text.append(buffer.data(), n);
  if (text.empty()) throw std::runtime_error("no output from " + command);
  return text;
}

// The tokenizer metadata of a well-formed little-endian GGUF file.
class GgufVocabularyReader {
 public:
  explicit GgufVocabularyReader(const std::filesystem::path& path) : file_(path, std::ios::binary) {
    if (read<uint32_t>() != 0x46554747) throw std::runtime_error("no GGUF file: " + path.string());
    read<uint32_t>();
    read<uint64_t>();
    const auto entries = read<uint64_t>();
    for (uint64_t i = 0; i < entries; ++i) {
      const std::string key = text();
      value(key, read<uint32_t>());
    }
  }
  GgufVocabulary result;

 private:
  template <class T>
  T read() {
    T v{};
    if (!file_.read(reinterpret_cast<char*>(&v), sizeof v)) throw std::runtime_error("short GGUF file");
    return v;
  }
  std::string text() {
    std::string s(read<uint64_t>(), '\0');
    file_.read(s.data(), static_cast<std::streamsize>(s.size()));
    return s;
  }
  void value(const std::string& key, uint32_t type) {
    static constexpr int kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    constexpr uint32_t kString = 8, kArray = 9;
    const std::string field = key.starts_with("tokenizer.ggml.") ? key.substr(15) : "";
    if (type == kArray) {
      const auto element = read<uint32_t>();
      const auto count = read<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) {
        if (element == kString) {
          std::string s = text();
          if (field == "tokens") result.tokens.push_back(std::move(s));
          if (field == "merges") result.merges.push_back(std::move(s));
        } else if (field == "scores") {
          result.scores.push_back(read<float>());
        } else if (field == "token_type") {
          result.token_types.push_back(read<int32_t>());
        } else {
          file_.ignore(kSizes[element]);
        }
      }
    } else if (type == kString) {
      const std::string s = text();
      if (field == "model") result.model = s;
      if (field == "pre") result.pre = s;
    } else if (field == "bos_token_id") {
      result.bos_id = read<int32_t>();
    } else if (field == "eos_token_id") {
      result.eos_id = read<int32_t>();
    } else if (field == "add_bos_token") {
      result.add_bos = read<uint8_t>() != 0;
    } else if (field == "add_space_prefix") {
      result.add_space_prefix = read<uint8_t>() != 0;
    } else {
      file_.ignore(kSizes[type]);
    }
  }

  std::ifstream file_;
};

// Random scalar values of all planes, mostly of the scripts in use.
inline std::string random_utf8(std::mt19937& rng, size_t characters) {
  std::string text;
  const auto pick = [&](uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(rng);
  };
  while (characters-- > 0) {
    uint32_t code = 0;
    switch (pick(0, 9)) {
      case 0:
        code = pick(0, 0x7F);
        break;
      case 1:
        code = " \n\r\t'"[pick(0, 4)];
        break;
      case 2:
        code = "sStTdmMlLvVrReE"[pick(0, 14)];
        break;
      case 3:
        code = pick(0x80, 0x7FF);
        break;
      case 4:
        code = pick(0x4E00, 0x9FA5);
        break;
      case 5:
        code = pick(0x800, 0xD7FF);
        break;
      case 6:
        code = pick(0xE000, 0xFFFF);
        break;
      case 7:
        code = pick(0x10000, 0x10FFFF);
        break;
      case 8:
        code = pick('0', '9');
        break;
      default:
        code = pick('a', 'z');
        break;
    }
    const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else if (code < 0x800) {
      text += {static_cast<char>(0xC0 | code >> 6), tail(0)};
    } else if (code < 0x10000) {
      text += {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
    } else {
      text += {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
    }
  }
  return text;
}

}  // namespace quire::testing
