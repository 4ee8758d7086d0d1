#pragma once
// From the tokens of an answer to its text: a chain of steps over the list of token strings, as Hugging Face tokenizers
// has it.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // Changes the list in time linear in its bytes. whole: the tokens are all of an answer; false for a single one from
  // inside it, which is neither first nor last.
  virtual void apply(std::vector<std::string>& tokens, bool whole) const = 0;
  // What matters for a single token: whether its bytes may be a piece of a character (the step then appends them to out
  // and returns true).
  virtual bool append_bytes(std::string_view, std::string&) const { return false; }
  virtual bool joins_all() const { return false; }  // it sees the whole text: steps after it work on that
};

std::unique_ptr<DecoderStep> make_byte_level_decoder();
std::unique_ptr<DecoderStep> make_byte_fallback_decoder();  // <0xNN>; each byte of a run that is not UTF-8 gives U+FFFD
std::unique_ptr<DecoderStep> make_fuse_decoder();
std::unique_ptr<DecoderStep> make_strip_decoder(std::string content, size_t start, size_t stop);  // of each token
std::unique_ptr<DecoderStep> make_replace_decoder(std::string from, std::string to);
std::unique_ptr<DecoderStep> make_regex_replace_decoder(const std::string& pattern, std::string to);
std::unique_ptr<DecoderStep> make_metaspace_decoder(std::string mark, bool strips_first);
std::unique_ptr<DecoderStep> make_word_piece_decoder(std::string prefix, bool cleanup);
std::unique_ptr<DecoderStep> make_bpe_decoder(std::string suffix);
// Of models that say a token for each moment of a sound: repeated ones count once, pad stands for none. A single token
// can't be told from a repeated one, so a stream shows those too.
std::unique_ptr<DecoderStep> make_ctc_decoder(std::string pad, std::string delimiter, bool cleanup);

class Decoder {
 public:
  void add(std::unique_ptr<DecoderStep> step) { steps_.push_back(std::move(step)); }
  // No step at all: a space between tokens.
  std::string decode(std::vector<std::string> tokens) const;
  // What a token inside an answer stands for; may be a piece of a character.
  std::string token_bytes(std::string_view spelling) const;

 private:
  std::vector<std::unique_ptr<DecoderStep>> steps_;
};

}  // namespace quire
