#pragma once
// The Tokenizer: added tokens are found, the rest is normalized, cut into words and turned into tokens. Put together by
// the readers of tokenizer.json, GGUF and SentencePiece models.
#include <memory>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_model.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace quire {

class PipelineTokenizer final : public Tokenizer {
 public:
  // How ids become text.
  enum class Decoding {
    kBytes,         // the bytes of the tokens in a row, repaired
    kBytesOrChain,  // the same where that is UTF-8, as it is nearly always; else what the decoder makes of the
                    // spellings
    kChain,         // what the decoder makes of the spellings
  };

  // Spaces at the start of decoded text, which encoding put there or would have taken away.
  enum class LeadingSpace { kKeep, kDropOne, kDropAll };

  struct Parts {
    std::unique_ptr<Vocabulary> vocabulary;
    std::unique_ptr<TokenModel> model;  // over *vocabulary
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    Decoder decoder;
    Decoding decoding = Decoding::kBytes;
    std::vector<AddedToken> added_tokens;
    std::string prefix_at_start;                       // put before normalized text at the start of the whole
    std::vector<int32_t> begin_ids, end_ids;           // with add_special_tokens
    LeadingSpace leading_space = LeadingSpace::kKeep;  // kBytes, kBytesOrChain: what decode() does with it
    int32_t bos_id = -1, eos_id = -1;
  };
  explicit PipelineTokenizer(Parts parts);

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
  std::string decode_chain(std::span<const int32_t> ids, bool skip_special_tokens) const;

  Parts parts_;
  AddedTokenFinder raw_finder_, normalized_finder_;
};

}  // namespace quire
