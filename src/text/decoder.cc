#include "text/decoder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/replace.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace quire {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string join(const std::vector<std::string>& tokens, std::string_view between) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += between;
    text += tokens[i];
  }
  return text;
}

// A step that looks at each token alone.
class EachStep : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens, bool whole) const final {
    for (size_t i = 0; i < tokens.size(); ++i) change(tokens[i], whole && i == 0, whole && i + 1 == tokens.size());
  }

 private:
  virtual void change(std::string& token, bool is_first, bool is_last) const = 0;
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  if (replace_literal(text, from, to, SIZE_MAX, out).data() != text.data()) text = std::move(out);
}

// The spaces that tokens of WordPiece leave before punctuation and in contractions.
void clean_up(std::string& token) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules = {{{" .", "."},
                                                                                            {" ?", "?"},
                                                                                            {" !", "!"},
                                                                                            {" ,", ","},
                                                                                            {" ' ", "'"},
                                                                                            {" n't", "n't"},
                                                                                            {" 'm", "'m"},
                                                                                            {" do not", " don't"},
                                                                                            {" 's", "'s"},
                                                                                            {" 've", "'ve"},
                                                                                            {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) replace_all(token, from, to);
}

class ByteLevelStep final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens, bool) const override {
    std::string bytes, text;
    for (const std::string& token : tokens) append_bytes(token, bytes);
    append_lossy_utf8(text, bytes);
    tokens.assign(1, text);
  }
  bool append_bytes(std::string_view token, std::string& out) const override {
    if (!append_byte_level_decoded(out, token)) out += token;
    return true;
  }
  bool joins_all() const override { return true; }
};

class ByteFallbackStep final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens, bool) const override {
    std::vector<std::string> result;
    std::string bytes;
    const auto flush = [&] {
      if (is_valid_utf8(bytes)) {
        if (!bytes.empty()) result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), std::string(kReplacement));
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (append_bytes(token, bytes)) continue;
      flush();
      result.push_back(std::move(token));
    }
    flush();
    tokens = std::move(result);
  }
  bool append_bytes(std::string_view token, std::string& out) const override {
    const int value = byte_token_value(token);
    if (value >= 0) out += static_cast<char>(value);
    return value >= 0;
  }
};

class FuseStep final : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens, bool) const override { tokens.assign(1, join(tokens, "")); }
  bool joins_all() const override { return true; }
};

class StripStep final : public EachStep {
 public:
  StripStep(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}

 private:
  void change(std::string& token, bool, bool) const override {
    std::string_view rest = token;
    for (size_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
    for (size_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
    if (rest.size() < token.size()) token = std::string(rest);
  }

  std::string content_;
  size_t start_, stop_;
};

// The same work as in a normalizer.
class ReplaceStep final : public EachStep {
 public:
  explicit ReplaceStep(std::unique_ptr<NormalizerStep> step) : step_(std::move(step)) {}

 private:
  void change(std::string& token, bool, bool) const override {
    // Of a token, however many of these steps follow each other.
    constexpr size_t kMost = size_t{64} << 10;
    std::string out;
    const std::string_view result = step_->apply(token, std::max(kMost, token.size()), out);
    if (result.data() != token.data()) token = std::string(result);
  }

  std::unique_ptr<NormalizerStep> step_;
};

class MetaspaceStep final : public EachStep {
 public:
  MetaspaceStep(std::string mark, bool strips_first) : mark_(std::move(mark)), strips_first_(strips_first) {}

 private:
  void change(std::string& token, bool is_first, bool) const override {
    replace_all(token, mark_, is_first && strips_first_ ? "" : " ");
  }

  std::string mark_;
  bool strips_first_;
};

class WordPieceStep final : public EachStep {
 public:
  WordPieceStep(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}

 private:
  void change(std::string& token, bool is_first, bool) const override {
    if (!is_first) {
      if (token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else {
        token.insert(0, 1, ' ');
      }
    }
    if (cleanup_) clean_up(token);
  }

  std::string prefix_;
  bool cleanup_;
};

class BpeStep final : public EachStep {
 public:
  explicit BpeStep(std::string suffix) : suffix_(std::move(suffix)) {}

 private:
  void change(std::string& token, bool, bool is_last) const override {
    replace_all(token, suffix_, is_last ? "" : " ");
  }

  std::string suffix_;
};

class CtcStep final : public DecoderStep {
 public:
  CtcStep(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}

  void apply(std::vector<std::string>& tokens, bool) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      replace_all(token, pad_, "");
      if (!cleanup_) continue;
      clean_up(token);
      replace_all(token, delimiter_, " ");
    }
    std::erase(tokens, "");
  }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
};

}  // namespace

std::unique_ptr<DecoderStep> make_byte_level_decoder() { return std::make_unique<ByteLevelStep>(); }
std::unique_ptr<DecoderStep> make_byte_fallback_decoder() { return std::make_unique<ByteFallbackStep>(); }
std::unique_ptr<DecoderStep> make_fuse_decoder() { return std::make_unique<FuseStep>(); }
std::unique_ptr<DecoderStep> make_strip_decoder(std::string content, size_t start, size_t stop) {
  return std::make_unique<StripStep>(std::move(content), start, stop);
}
std::unique_ptr<DecoderStep> make_replace_decoder(std::string from, std::string to) {
  return std::make_unique<ReplaceStep>(make_replace_step(std::move(from), std::move(to)));
}
std::unique_ptr<DecoderStep> make_regex_replace_decoder(const std::string& pattern, std::string to) {
  return std::make_unique<ReplaceStep>(make_regex_replace_step(pattern, std::move(to)));
}
std::unique_ptr<DecoderStep> make_metaspace_decoder(std::string mark, bool strips_first) {
  return std::make_unique<MetaspaceStep>(std::move(mark), strips_first);
}
std::unique_ptr<DecoderStep> make_word_piece_decoder(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceStep>(std::move(prefix), cleanup);
}
std::unique_ptr<DecoderStep> make_bpe_decoder(std::string suffix) {
  return std::make_unique<BpeStep>(std::move(suffix));
}
std::unique_ptr<DecoderStep> make_ctc_decoder(std::string pad, std::string delimiter, bool cleanup) {
  return std::make_unique<CtcStep>(std::move(pad), std::move(delimiter), cleanup);
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  if (steps_.empty()) return join(tokens, " ");
  for (const auto& step : steps_) step->apply(tokens, true);
  return join(tokens, "");
}

std::string Decoder::token_bytes(std::string_view spelling) const {
  if (steps_.empty()) return std::string(" ").append(spelling);
  std::vector<std::string> token(1, std::string(spelling));
  std::string bytes;
  for (const auto& step : steps_) {
    if (step->append_bytes(token[0], bytes)) return bytes;
    if (step->joins_all()) break;
    step->apply(token, false);
    if (token.empty()) return {};
  }
  return join(token, "");
}

}  // namespace quire
