#include "text/pipeline_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace quire {
namespace {

constexpr size_t kMaxText = size_t{1} << 29;  // bytes; positions are 32 bits, and normalization may make text longer

}  // namespace

struct PipelineTokenizer::Scratch {
  Normalizer::Scratch normalizer;
  PreTokenizer::Scratch pre_tokenizer;
  ModelScratch model;
  std::string prefixed;
};

PipelineTokenizer::PipelineTokenizer(Parts parts) : parts_(std::move(parts)) {
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

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text, bool add_special_tokens) const {
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

void PipelineTokenizer::encode_plain(std::string_view text, bool at_start, Scratch& scratch,
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

void PipelineTokenizer::encode_normalized(std::string_view text, bool at_start, Scratch& scratch,
                                          std::vector<int32_t>& ids) const {
  if (at_start && !parts_.prefix_at_start.empty()) {
    scratch.prefixed.assign(parts_.prefix_at_start).append(text);
    text = scratch.prefixed;
  }
  const PreTokenizer::Words words = parts_.pre_tokenizer.split(text, at_start, scratch.pre_tokenizer);
  for (const TextSpan span : words.spans) {
    parts_.model->encode(words.text.substr(span.begin, span.end - span.begin), scratch.model, ids);
  }
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  if (parts_.decoding == Decoding::kChain) return decode_chain(ids, skip_special_tokens);
  std::string bytes;
  for (const int32_t id : ids) {
    if (skip_special_tokens && is_special(id)) continue;
    bytes += token_bytes(id);
  }
  const size_t spaces = std::min(bytes.find_first_not_of(' '), bytes.size());
  if (parts_.leading_space == LeadingSpace::kDropAll) bytes.erase(0, spaces);
  if (parts_.leading_space == LeadingSpace::kDropOne && spaces > 0) bytes.erase(0, 1);
  if (is_valid_utf8(bytes)) return bytes;
  if (parts_.decoding == Decoding::kBytesOrChain) return decode_chain(ids, skip_special_tokens);
  std::string text;
  text.reserve(bytes.size());
  append_lossy_utf8(text, bytes);
  return text;
}

std::string PipelineTokenizer::decode_chain(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    if (!parts_.vocabulary->has(id) || (skip_special_tokens && is_special(id))) continue;
    tokens.emplace_back(token_string(id));
  }
  return parts_.decoder.decode(std::move(tokens));
}

}  // namespace quire
