#pragma once
// WordPiece of BERT: the longest token first, from left to right. WordLevel: a word is one token.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/token_model.h"
#include "text/vocabulary.h"

namespace quire {

class WordPieceModel final : public TokenModel {
 public:
  struct Options {
    int32_t unknown_id = -1;
    std::string continuing_prefix = "##";  // of tokens that don't begin a word
    size_t max_characters = 100;           // a longer word is unknown
  };
  // The vocabulary must be complete and outlive the model.
  WordPieceModel(const Vocabulary& vocabulary, Options options);
  // O(n x longest token). A word that can't be cut into tokens is one unknown token.
  void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  Options options_;
  ByteTrie first_, next_;  // next_: without the prefix
};

class WordLevelModel final : public TokenModel {
 public:
  WordLevelModel(const Vocabulary& vocabulary, int32_t unknown_id) : vocabulary_(vocabulary), unknown_id_(unknown_id) {}
  // An unknown word is left out where there is no unknown token.
  void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  const Vocabulary& vocabulary_;
  int32_t unknown_id_;
};

}  // namespace quire
