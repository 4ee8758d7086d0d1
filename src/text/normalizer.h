#pragma once
// What happens to text before it is cut into words: a chain of steps, each of which makes a new text.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalization_forms.h"

namespace quire {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Valid UTF-8 in and out, in time linear in text. The result is part of text or all of out, which text doesn't lie
  // in. Throws Error(kInvalidArgument) when out would grow beyond limit bytes.
  virtual std::string_view apply(std::string_view text, size_t limit, std::string& out) const = 0;
};
void check_normalized_size(size_t size, size_t limit);  // throws that error

std::unique_ptr<NormalizerStep> make_form_step(NormalizationForm form);
std::unique_ptr<NormalizerStep> make_replace_step(std::string from, std::string to);
// Throws Error(kInvalidArgument) for a pattern that doesn't compile; apply() throws it when a text needs more than the
// match limits.
std::unique_ptr<NormalizerStep> make_regex_replace_step(const std::string& pattern, std::string to);
std::unique_ptr<NormalizerStep> make_prepend_step(std::string prefix);   // to text that is not empty
std::unique_ptr<NormalizerStep> make_strip_step(bool left, bool right);  // white space
std::unique_ptr<NormalizerStep> make_lowercase_step();
std::unique_ptr<NormalizerStep> make_strip_accents_step();
std::unique_ptr<NormalizerStep> make_nmt_step();
std::unique_ptr<NormalizerStep> make_byte_level_step();  // each byte as its character of text/byte_level.h

struct BertNormalization {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};
std::unique_ptr<NormalizerStep> make_bert_step(BertNormalization options);

// The compiled character map of SentencePiece, applied to grapheme clusters as Hugging Face tokenizers does. Throws
// Error(kInvalidArgument) if it is no such map.
std::unique_ptr<NormalizerStep> make_precompiled_step(const std::string& charsmap);

// What a SentencePiece model file asks for, applied as its own library does.
struct SentencePieceNormalization {
  std::string charsmap;  // may be empty
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;  // a space becomes U+2581
};
std::unique_ptr<NormalizerStep> make_sentence_piece_step(SentencePieceNormalization options);

class Normalizer {
 public:
  struct Scratch {
    std::string buffers[2];
  };

  void add(std::unique_ptr<NormalizerStep> step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }

  // Normalizes valid UTF-8. The result lies in text or in scratch. Empty text stays empty. Throws
  // Error(kInvalidArgument) if it grows beyond 1 MiB + 32 times its length (the normalization forms need 11 times).
  std::string_view apply(std::string_view text, Scratch& scratch) const;

 private:
  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace quire
