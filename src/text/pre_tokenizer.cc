#include "text/pre_tokenizer.h"

#include "base/error.h"
#include "text/byte_level.h"

namespace quire {
namespace {

constexpr size_t kMaxText = size_t{1} << 30;

void check_length(const std::string& text) {
  if (text.size() > kMaxText) throw invalid_argument("the text is too long to be tokenized", "prompt");
}

}  // namespace

std::string_view PreTokenizer::rewrite(const WordPrefix& prefix, std::string_view text, bool at_start, std::string& out,
                                       std::vector<TextSpan>& spans) {
  out.clear();
  for (TextSpan& span : spans) {
    const std::string_view word = text.substr(span.begin, span.end - span.begin);
    const bool first = at_start && span.begin == 0;
    const size_t begin = out.size();
    const bool wants_prefix =
        prefix.scheme == WordPrefix::Scheme::kAlways || (prefix.scheme == WordPrefix::Scheme::kFirst && first);
    const bool has_prefix = word.starts_with(prefix.prefix) || (prefix.prefix == prefix.mark && word.starts_with(' '));
    if (wants_prefix && !has_prefix) out += prefix.prefix;
    if (prefix.mark.empty()) {
      out += word;
    } else {
      for (const char c : word) {
        if (c == ' ') {
          out += prefix.mark;
        } else {
          out += c;
        }
      }
    }
    check_length(out);
    span = {static_cast<uint32_t>(begin), static_cast<uint32_t>(out.size())};
  }
  return out;
}

std::string_view PreTokenizer::spell_bytes(std::string_view text, std::string& out, std::vector<TextSpan>& spans) {
  out.clear();
  for (TextSpan& span : spans) {
    const auto begin = static_cast<uint32_t>(out.size());
    append_byte_level_encoded(out, text.substr(span.begin, span.end - span.begin));
    check_length(out);
    span = {begin, static_cast<uint32_t>(out.size())};
  }
  return out;
}

PreTokenizer::Words PreTokenizer::split(std::string_view text, bool at_start, Scratch& scratch) const {
  scratch.spans.clear();
  scratch.spans.push_back({0, static_cast<uint32_t>(text.size())});
  int buffer = 0;  // the one that text does not lie in
  for (const Stage& stage : stages_) {
    if (!stage.splitter) {
      text = stage.spells_bytes ? spell_bytes(text, scratch.texts[buffer], scratch.spans)
                                : rewrite(stage.prefix, text, at_start, scratch.texts[buffer], scratch.spans);
      buffer = 1 - buffer;
      continue;
    }
    scratch.next.clear();
    for (const TextSpan span : scratch.spans) stage.splitter->split(text, span, scratch.next);
    scratch.spans.swap(scratch.next);
  }
  return {text, scratch.spans};
}

}  // namespace quire
