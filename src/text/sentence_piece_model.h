#pragma once
// Reads SentencePiece's own model files (tokenizer.model, spiece.model): a protocol buffer of which few fields matter
// here.
#include <string_view>

#include "text/normalizer.h"
#include "text/tokenizer.h"

namespace quire {

struct SentencePieceModel {
  enum class Type { kUnigram, kBpe };
  Type type = Type::kUnigram;
  GgufVocabulary vocabulary;  // tokens, scores, token_types, bos_id, eos_id
  SentencePieceNormalization normalization;
  bool add_dummy_prefix = true;  // a space before the text
  bool byte_fallback = false;
};

// Throws Error(kInvalidArgument) naming the field: for bytes that are no such file, and for kinds of models that aren't
// supported (words, characters, white space as a suffix).
SentencePieceModel read_sentence_piece_model(std::string_view file);

}  // namespace quire
