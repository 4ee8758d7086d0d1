#pragma once
// The Tokenizer over byte-pair encoding, put together by the readers of tokenizer.json and GGUF.
#include <memory>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace quire {

class BpeTokenizer final : public Tokenizer {
 public:
  // Where a word prefix (a space, or U+2581) is put in front of text between added tokens that does not begin with it.
  enum class PrefixScheme { kNever, kFirst, kAlways };

  struct Parts {
    std::unique_ptr<Vocabulary> vocabulary;
    std::unique_ptr<BpeModel> model;  // over *vocabulary
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    std::vector<AddedToken> added_tokens;
    std::string mark;  // what a space becomes after normalization; empty: it stays
    std::string prefix;
    PrefixScheme prefix_scheme = PrefixScheme::kNever;
    std::vector<int32_t> begin_ids, end_ids;  // with add_special_tokens
    bool strip_leading_space = false;         // decode() drops the one that encoding put there
    int32_t bos_id = -1, eos_id = -1;
  };
  explicit BpeTokenizer(Parts parts);

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  std::string_view token_bytes(int32_t id) const override { return parts_.vocabulary->bytes(id); }
  std::string_view token_string(int32_t id) const override { return parts_.vocabulary->spelling(id); }
  bool is_special(int32_t id) const override { return parts_.vocabulary->is_special(id); }
  int32_t token_id(std::string_view token) const override { return parts_.vocabulary->find_spelling(token); }
  int32_t vocab_size() const override { return parts_.vocabulary->size(); }
  int32_t bos_id() const override { return parts_.bos_id; }
  int32_t eos_id() const override { return parts_.eos_id; }

 private:
  struct Scratch;
  void encode_plain(std::string_view text, bool at_start, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_normalized(std::string_view text, bool at_start, Scratch& scratch, std::vector<int32_t>& ids) const;

  Parts parts_;
  AddedTokenFinder raw_finder_, normalized_finder_;
};

}  // namespace quire
