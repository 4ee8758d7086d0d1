#pragma once
// Text to token ids and back. Built from Hugging Face tokenizer.json, GGUF metadata or a SentencePiece model file;
// immutable after that, so any thread may use it.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// What a tokenizer is built from; the caller copies it from the checkpoint (text does not include checkpoint headers).
struct GgufVocabulary {
  std::string model, pre;
  std::vector<std::string> tokens, merges;
  std::vector<float> scores;
  std::vector<int32_t> token_types;  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  int32_t bos_id = -1, eos_id = -1;
  std::optional<bool> add_bos, add_eos, add_space_prefix;  // empty: what the model and pre usually do
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of UTF-8 text; invalid bytes become U+FFFD, one for each maximal subpart. Control tokens spelled in the text
  // become their ids. add_special_tokens: BOS and so on, where the model asks for them. Linear time in text.size().
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const = 0;

  // The whole text of ids; ids outside the vocabulary are skipped. Never invalid UTF-8 (a broken sequence gives
  // U+FFFD). Where encoding puts a space in front of the text, decoding takes it away.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const = 0;

  // The raw bytes one id stands for (may be a piece of a character), as the incremental detokenizer needs them. For a
  // special token its content.
  virtual std::string_view token_bytes(int32_t id) const = 0;

  // The token as the vocabulary spells it ("Ġthe", "<|im_end|>"); empty if there is no such id.
  virtual std::string_view token_string(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;               // control tokens: left out with skip_special_tokens
  virtual int32_t token_id(std::string_view token) const = 0;  // -1 if absent
  virtual int32_t vocab_size() const = 0;                      // largest id + 1
  virtual int32_t bos_id() const = 0;                          // -1 if none
  virtual int32_t eos_id() const = 0;                          // -1 if none
};

// Throw Error(kInvalidArgument) naming the field and what of it isn't supported; docs/tokenizers.md lists what is.
// tokenizer_config_json may be empty; it names BOS and EOS and, for a SentencePiece model, says whether to add them
// (else BPE models begin with BOS).
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json);
std::unique_ptr<Tokenizer> tokenizer_from_gguf(const GgufVocabulary& vocabulary);
std::unique_ptr<Tokenizer> tokenizer_from_sentence_piece(std::string_view model,
                                                         std::string_view tokenizer_config_json);

}  // namespace quire
