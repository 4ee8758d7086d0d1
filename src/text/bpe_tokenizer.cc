#include "text/bpe_tokenizer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "text/unicode.h"

namespace quire {
namespace {

constexpr size_t kMaxText = size_t{1} << 29;  // bytes; positions are 32 bits, and normalization may make text longer

}  // namespace

struct BpeTokenizer::Scratch {
  Normalizer::Scratch normalizer;
  PreTokenizer::Scratch pre_tokenizer;
  BpeModel::Scratch model;
  std::string word_text;
};

BpeTokenizer::BpeTokenizer(Parts parts) : parts_(std::move(parts)) {
  Normalizer::Scratch scratch;
  for (const AddedToken& token : parts_.added_tokens) {
    if (!token.normalized) {
      raw_finder_.add(token);
      continue;
    }
    AddedToken normalized = token;
    normalized.content = parts_.normalizer.apply(token.content, scratch);
    normalized_finder_.add(normalized);
  }
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  if (text.size() > kMaxText) {
    throw invalid_argument(fmt::format("the text is {} bytes long, at most {} can be tokenized", text.size(), kMaxText),
                           "prompt");
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    append_lossy_utf8(repaired, text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  if (add_special_tokens) ids.insert(ids.end(), parts_.begin_ids.begin(), parts_.begin_ids.end());
  Scratch scratch;
  raw_finder_.split(text, [&](std::string_view part, int32_t id) {
    if (id >= 0) {
      ids.push_back(id);
    } else {
      encode_plain(part, part.data() == text.data(), scratch, ids);
    }
  });
  if (add_special_tokens) ids.insert(ids.end(), parts_.end_ids.begin(), parts_.end_ids.end());
  return ids;
}

void BpeTokenizer::encode_plain(std::string_view text, bool at_start, Scratch& scratch,
                                std::vector<int32_t>& ids) const {
  const std::string_view normalized = parts_.normalizer.apply(text, scratch.normalizer);
  if (normalized.size() > UINT32_MAX / 4) {
    throw invalid_argument(fmt::format("the text is {} bytes long after normalization, at most {} can be tokenized",
                                       normalized.size(), UINT32_MAX / 4),
                           "prompt");
  }
  normalized_finder_.split(normalized, [&](std::string_view part, int32_t id) {
    if (id >= 0) {
      ids.push_back(id);
    } else {
      encode_normalized(part, at_start && part.data() == normalized.data(), scratch, ids);
    }
  });
}

void BpeTokenizer::encode_normalized(std::string_view text, bool at_start, Scratch& scratch,
                                     std::vector<int32_t>& ids) const {
  const bool wants_prefix =
      parts_.prefix_scheme == PrefixScheme::kAlways || (parts_.prefix_scheme == PrefixScheme::kFirst && at_start);
  if (wants_prefix || !parts_.mark.empty()) {
    std::string& out = scratch.word_text;
    out.clear();
    for (const char c : text) {
      if (c == ' ' && !parts_.mark.empty()) {
        out += parts_.mark;
      } else {
        out += c;
      }
    }
    if (wants_prefix && !out.starts_with(parts_.prefix)) out.insert(0, parts_.prefix);
    text = out;
  }
  for (const TextSpan span : parts_.pre_tokenizer.split(text, scratch.pre_tokenizer)) {
    parts_.model->encode(text.substr(span.begin, span.end - span.begin), scratch.model, ids);
  }
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (skip_special_tokens && is_special(id)) continue;
    bytes += token_bytes(id);
  }
  if (parts_.strip_leading_space && bytes.starts_with(' ')) bytes.erase(0, 1);
  if (is_valid_utf8(bytes)) return bytes;
  std::string text;
  text.reserve(bytes.size());
  append_lossy_utf8(text, bytes);
  return text;
}

}  // namespace quire
