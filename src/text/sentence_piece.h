#pragma once
// What GGUF metadata and SentencePiece model files have in common: tokens with scores and types.
#include <cstdint>

#include "text/pipeline_tokenizer.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace quire {

inline constexpr int32_t kUnknownType = 2, kControlType = 3, kUserDefinedType = 4, kUnusedType = 5, kByteType = 6;

// The type of a token, 1 (normal) if the source doesn't say.
int32_t token_type_of(const GgufVocabulary& source, size_t id);

// Makes parts.vocabulary. Control, user defined and unknown tokens become added tokens.
void add_vocabulary_tokens(const GgufVocabulary& source, Vocabulary::Style style, PipelineTokenizer::Parts& parts);

// Makes vocabulary and model of SentencePiece's kind of byte-pair encoding, with byte fallback; normalizing is left to
// the caller. Throws Error(kInvalidArgument) if the scores don't fit the tokens or hold a NaN.
void build_sentence_piece_bpe(const GgufVocabulary& source, PipelineTokenizer::Parts& parts);

}  // namespace quire
