#include "text/normalizer.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "text/byte_level.h"
#include "text/char_sets.h"
#include "text/replace.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace quire {
namespace {

bool is_space(char32_t code) { return (CharTable::get()[code] & kSpace) != 0; }

class FormStep final : public NormalizerStep {
 public:
  explicit FormStep(NormalizationForm form) : form_(form) {}
  std::string_view apply(std::string_view text, size_t, std::string& out) const override {
    return normalize(text, form_, out);
  }

 private:
  NormalizationForm form_;
};

class ReplaceStep final : public NormalizerStep {
 public:
  ReplaceStep(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  std::string_view apply(std::string_view text, size_t limit, std::string& out) const override {
    return replace_literal(text, from_, to_, limit, out);
  }

 private:
  std::string from_, to_;
};

class PrependStep final : public NormalizerStep {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string_view apply(std::string_view text, size_t limit, std::string& out) const override {
    if (text.empty()) return text;
    check_normalized_size(prefix_.size() + text.size(), limit);
    out.assign(prefix_).append(text);
    return out;
  }

 private:
  std::string prefix_;
};

class StripStep final : public NormalizerStep {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}
  std::string_view apply(std::string_view text, size_t, std::string&) const override {
    const char *begin = text.data(), *end = begin + text.size();
    while (left_ && begin < end) {
      const char* next = begin;
      if (!is_space(decode_valid_utf8(next))) break;
      begin = next;
    }
    while (right_ && begin < end) {
      const char *last = previous_character(begin, end), *p = last;
      if (!is_space(decode_valid_utf8(p))) break;
      end = last;
    }
    return {begin, static_cast<size_t>(end - begin)};
  }

 private:
  bool left_, right_;
};

// Makes the text anew from what visit(out, code) appends for each character.
template <class Visit>
std::string_view map_characters(std::string_view text, std::string& out, Visit&& visit) {
  out.clear();
  for (const char *p = text.data(), *end = p + text.size(); p < end;) visit(out, decode_valid_utf8(p));
  return out;
}

class LowercaseStep final : public NormalizerStep {
 public:
  std::string_view apply(std::string_view text, size_t, std::string& out) const override {
    return map_characters(text, out, append_lower);
  }
};

class StripAccentsStep final : public NormalizerStep {
 public:
  std::string_view apply(std::string_view text, size_t, std::string& out) const override {
    return map_characters(text, out, [](std::string& to, char32_t code) {
      if (!accents().contains(code)) append_utf8(to, code);
    });
  }
};

// The characters that the rules of nmt_nfkc take out or make a space.
class NmtStep final : public NormalizerStep {
 public:
  std::string_view apply(std::string_view text, size_t, std::string& out) const override {
    return map_characters(text, out, [](std::string& to, char32_t c) {
      const bool dropped =
          (c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
      const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      if (!dropped) append_utf8(to, space ? U' ' : c);
    });
  }
};

class ByteLevelStep final : public NormalizerStep {
 public:
  std::string_view apply(std::string_view text, size_t limit, std::string& out) const override {
    out.clear();
    append_byte_level_encoded(out, text);
    check_normalized_size(out.size(), limit);
    return out;
  }
};

class BertStep final : public NormalizerStep {
 public:
  explicit BertStep(BertNormalization options) : options_(options) {}

  std::string_view apply(std::string_view text, size_t, std::string& out) const override {
    map_characters(text, out, [&](std::string& to, char32_t code) {
      if (options_.clean_text) {
        if (bert_control_characters().contains(code)) return;
        if (is_space(code)) code = ' ';
      }
      const bool chinese = options_.handle_chinese_chars && is_chinese(code);
      if (chinese) to += ' ';
      append_utf8(to, code);
      if (chinese) to += ' ';
    });
    if (options_.strip_accents) {
      std::string decomposed;
      const std::string_view with_accents = normalize(out, NormalizationForm::kD, decomposed);
      if (with_accents.data() == decomposed.data()) {
        map_characters(with_accents, out, [](std::string& to, char32_t code) {
          if (!bert_accents().contains(code)) append_utf8(to, code);
        });
      }
    }
    if (options_.lowercase) {
      const std::string cased = std::move(out);
      map_characters(cased, out, append_lower);
    }
    return out;
  }

 private:
  // The ranges of the reference, which leave out U+2B820 to U+2B91F.
  static bool is_chinese(char32_t c) {
    if (c < 0x3400) return false;
    return c <= 0x4DBF || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
  }

  BertNormalization options_;
};

}  // namespace

std::unique_ptr<NormalizerStep> make_form_step(NormalizationForm form) { return std::make_unique<FormStep>(form); }
std::unique_ptr<NormalizerStep> make_replace_step(std::string from, std::string to) {
  return std::make_unique<ReplaceStep>(std::move(from), std::move(to));
}
std::unique_ptr<NormalizerStep> make_prepend_step(std::string prefix) {
  return std::make_unique<PrependStep>(std::move(prefix));
}
std::unique_ptr<NormalizerStep> make_strip_step(bool left, bool right) {
  return std::make_unique<StripStep>(left, right);
}
std::unique_ptr<NormalizerStep> make_lowercase_step() { return std::make_unique<LowercaseStep>(); }
std::unique_ptr<NormalizerStep> make_strip_accents_step() { return std::make_unique<StripAccentsStep>(); }
std::unique_ptr<NormalizerStep> make_nmt_step() { return std::make_unique<NmtStep>(); }
std::unique_ptr<NormalizerStep> make_byte_level_step() { return std::make_unique<ByteLevelStep>(); }
std::unique_ptr<NormalizerStep> make_bert_step(BertNormalization options) {
  return std::make_unique<BertStep>(options);
}

void check_normalized_size(size_t size, size_t limit) {
  if (size <= limit) return;
  throw invalid_argument(fmt::format("the tokenizer's normalizer makes a text longer than {} bytes", limit),
                         "normalizer");
}

std::string_view Normalizer::apply(std::string_view text, Scratch& scratch) const {
  if (text.empty()) return text;
  const size_t limit = (size_t{1} << 20) + 32 * text.size();
  int buffer = 0;  // the one that text does not lie in
  for (const auto& step : steps_) {
    std::string& out = scratch.buffers[buffer];
    text = step->apply(text, limit, out);
    if (!out.empty() && text.data() >= out.data() && text.data() <= out.data() + out.size()) buffer = 1 - buffer;
  }
  return text;
}

}  // namespace quire
