#pragma once
// Turns one word into tokens: byte-pair encoding, Unigram, WordPiece or WordLevel.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/merge_queue.h"

namespace quire {

// Work space of one encoding call, so that no word allocates. Each model uses its own part.
struct ModelScratch {
  // Byte-pair encoding.
  struct Symbol {
    int32_t id;
    uint32_t rank;  // of merging it with the next
    int32_t previous, next;
  };
  std::vector<Symbol> symbols;
  MergeQueue queue;
  std::string key;  // a word or character as the vocabulary spells it
  // Unigram: the best way to each byte of the word.
  struct Step {
    double score;
    int32_t id;
    uint32_t length;  // bytes of the token that ends here; 0: nothing ends here
  };
  std::vector<Step> steps;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the tokens of word, valid UTF-8 in the vocabulary's key form.
  virtual void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const = 0;
};

}  // namespace quire
