#include "checkpoint/gguf_tokenizer.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/quote.h"

namespace quire {
namespace {

// Byte tokens are spelled <0x00> to <0xFF>.
bool is_byte_token(const std::string& token) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f'); };
  return token.size() == 6 && token.compare(0, 3, "<0x") == 0 && hex(token[3]) && hex(token[4]) && token[5] == '>';
}

void check_arrays(const GgufFile& file, const TokenizerFiles::Gguf& v) {
  if (v.tokens.empty()) throw file.error("tokenizer.ggml.tokens is missing");
  const auto same_length = [&](size_t length, const char* key) {
    if (length != 0 && length != v.tokens.size()) {
      throw file.error(fmt::format("{} has {} entries for {} tokens", key, length, v.tokens.size()));
    }
  };
  same_length(v.scores.size(), "tokenizer.ggml.scores");
  same_length(v.token_types.size(), "tokenizer.ggml.token_type");
  constexpr int32_t kByte = 6;
  for (size_t i = 0; i < v.token_types.size(); ++i) {
    if (v.token_types[i] == kByte && !is_byte_token(v.tokens[i])) {
      constexpr size_t kMaxShown = 40;
      throw file.error(fmt::format("token {} is a byte token but is spelled {}, not <0x00> to <0xFF>", i,
                                   quote(v.tokens[i], kMaxShown)));
    }
  }
}

}  // namespace

std::optional<int32_t> gguf_token_id(const GgufFile& file, const char* key, size_t tokens) {
  const auto id = file.integer(key);
  if (!id) return std::nullopt;
  if (*id < 0 || *id >= static_cast<int64_t>(tokens)) {
    throw file.error(fmt::format("{} is {}; the vocabulary has {} tokens", key, *id, tokens));
  }
  return static_cast<int32_t>(*id);
}

TokenizerFiles read_gguf_tokenizer(const GgufFile& file) {
  TokenizerFiles files;
  if (const auto source = file.string("tokenizer.chat_template")) files.chat_templates["default"] = *source;
  for (const std::string& name : file.strings("tokenizer.chat_templates")) {
    if (const auto source = file.string("tokenizer.chat_template." + name)) files.chat_templates[name] = *source;
  }
  std::erase_if(files.chat_templates, [](const auto& entry) { return entry.second.empty(); });
  const auto model = file.string("tokenizer.ggml.model");
  if (!model) return files;
  auto vocabulary = std::make_unique<TokenizerFiles::Gguf>();
  TokenizerFiles::Gguf& v = *vocabulary;
  v.model = *model;
  v.pre = std::string(file.string("tokenizer.ggml.pre").value_or("default"));
  v.tokens = file.strings("tokenizer.ggml.tokens");
  v.merges = file.strings("tokenizer.ggml.merges");
  v.scores = file.floats("tokenizer.ggml.scores");
  v.token_types = file.integers("tokenizer.ggml.token_type");
  check_arrays(file, v);
  const auto id = [&](const char* key) { return gguf_token_id(file, key, v.tokens.size()).value_or(-1); };
  v.bos_id = id("tokenizer.ggml.bos_token_id");
  v.eos_id = id("tokenizer.ggml.eos_token_id");
  v.eot_id = id("tokenizer.ggml.eot_token_id");
  v.unk_id = id("tokenizer.ggml.unknown_token_id");
  v.pad_id = id("tokenizer.ggml.padding_token_id");
  v.add_bos = file.boolean("tokenizer.ggml.add_bos_token");
  v.add_eos = file.boolean("tokenizer.ggml.add_eos_token");
  v.add_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix");
  files.gguf = std::move(vocabulary);
  return files;
}

}  // namespace quire
