#pragma once
// The Unigram model of SentencePiece: of all ways to cut a word into tokens the one of the largest sum of scores.
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/token_model.h"
#include "text/vocabulary.h"

namespace quire {

class UnigramModel final : public TokenModel {
 public:
  struct Options {
    int32_t unknown_id = -1;        // -1: encode() throws where a character is no token
    bool byte_fallback = false;     // an unknown stretch becomes <0xNN> tokens
    bool single_precision = false;  // add scores as floats, as SentencePiece's own library does
  };
  static constexpr double kNeverInText = -std::numeric_limits<double>::infinity();
  // scores: of the ids from 0 on, finite or kNeverInText. The vocabulary must be complete and outlive the model; its
  // keys are the tokens.
  UnigramModel(const Vocabulary& vocabulary, std::vector<double> scores, Options options);

  // O(n x longest token). Neighbouring unknown characters become one unknown token.
  void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  void append(std::string_view token, int32_t id, std::vector<int32_t>& out) const;

  const Vocabulary& vocabulary_;
  std::vector<double> scores_;
  Options options_;
  double unknown_score_ = 0;
  ByteTrie trie_;
  std::array<int32_t, 256> byte_ids_;  // of <0xNN>, -1 if absent
};

}  // namespace quire
