#pragma once
// The vocabulary in a GGUF file's metadata (keys tokenizer.*).
#include <cstddef>
#include <cstdint>
#include <optional>

#include "checkpoint/gguf.h"

namespace quire {

// Lengths of the arrays, spelling of byte tokens and ids of special tokens are checked; fields are empty if the file
// has no vocabulary. Throws Error(kInvalidArgument) naming the key.
TokenizerFiles read_gguf_tokenizer(const GgufFile& file);

// nullopt if the key is absent; Error if the id is outside a vocabulary of `tokens`.
std::optional<int32_t> gguf_token_id(const GgufFile& file, const char* key, size_t tokens);

}  // namespace quire
