#pragma once
// The small parts of tokenizer.json, read from a tree: how text is normalized, cut, put together again, and what is put
// around it.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace quire {

// Says that a part of tokenizer.json is none that this reader knows.
[[noreturn]] void unsupported(std::string_view field, std::string_view what, std::string_view supported);

// All throw Error(kInvalidArgument) naming the field and what of it isn't supported, or nlohmann::json::exception.
void read_normalizer(const nlohmann::json& node, Normalizer& normalizer);

// Returns whether words are spelled in the byte-level alphabet.
bool read_pre_tokenizer(const nlohmann::json& node, PreTokenizer& pre_tokenizer);

// What the chain is, if it is a well-known one.
enum class DecoderKind {
  kByteLevel,           // ByteLevel alone
  kSentencePiece,       // U+2581 to a space, ByteFallback, Fuse
  kSentencePieceStrip,  // the same, and a space at the start is dropped
  kOther,
};
DecoderKind read_decoder(const nlohmann::json& node, Decoder& decoder);

struct SpecialIds {
  std::vector<int32_t> begin, end;  // around the text
};
SpecialIds read_post_processor(const nlohmann::json& node);

}  // namespace quire
