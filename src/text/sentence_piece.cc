#include "text/sentence_piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "text/bpe.h"
#include "text/unicode.h"

namespace quire {
namespace {

// SentencePiece merges whichever neighbours make the token of the best score, so each way to cut a token in two is a
// merge of that token's rank.
void derive_merges(const GgufVocabulary& source, const Vocabulary& vocabulary, BpeModel& model) {
  BpeModel::MergeWriter writer(model, BpeModel::MergeWriter::Unknown::kSkip);
  std::vector<float> ranks = source.scores;
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  for (size_t i = 0; i < source.tokens.size(); ++i) {
    const int32_t type = token_type_of(source, i);
    const std::string_view token = source.tokens[i];
    if (type == kControlType || type == kUnknownType || type == kByteType || type == kUnusedType) continue;
    if (token.size() > AddedTokenFinder::kMaxContent || !is_valid_utf8(token)) continue;
    const auto place = std::lower_bound(ranks.begin(), ranks.end(), source.scores[i], std::greater<>());
    const auto rank = static_cast<uint32_t>(place - ranks.begin());
    if (vocabulary.find(token) != static_cast<int32_t>(i)) continue;  // a later token is spelled the same
    const char *begin = token.data(), *end = begin + token.size();
    for (const char* cut = begin; cut < end;) {
      decode_valid_utf8(cut);
      if (const auto left = static_cast<size_t>(cut - begin); left < token.size()) {
        writer.add(token.substr(0, left), token.substr(left), rank);
      }
    }
  }
  writer.finish();
}

}  // namespace

int32_t token_type_of(const GgufVocabulary& source, size_t id) {
  return source.token_types.empty() ? 1 : source.token_types[id];
}

void add_vocabulary_tokens(const GgufVocabulary& source, Vocabulary::Style style, PipelineTokenizer::Parts& parts) {
  parts.vocabulary = std::make_unique<Vocabulary>(style, source.tokens.size());
  for (size_t i = 0; i < source.tokens.size(); ++i) {
    const int32_t type = token_type_of(source, i);
    const auto id = static_cast<int32_t>(i);
    if (type != kControlType && type != kUserDefinedType && type != kUnknownType) {
      parts.vocabulary->add(id, source.tokens[i]);
      continue;
    }
    const bool special = type != kUserDefinedType;
    parts.vocabulary->add_verbatim(id, source.tokens[i], special);
    parts.added_tokens.push_back({.id = id, .content = source.tokens[i], .special = special});
  }
}

void build_sentence_piece_bpe(const GgufVocabulary& source, PipelineTokenizer::Parts& parts) {
  if (source.scores.size() != source.tokens.size()) {
    throw invalid_argument(
        fmt::format("tokenizer.ggml.scores has {} entries for {} tokens", source.scores.size(), source.tokens.size()),
        "tokenizer.ggml.scores");
  }
  if (std::any_of(source.scores.begin(), source.scores.end(), [](float score) { return score != score; })) {
    throw invalid_argument("tokenizer.ggml.scores holds a NaN", "tokenizer.ggml.scores");
  }
  add_vocabulary_tokens(source, {.mark_is_space = true, .byte_tokens = true}, parts);
  BpeModel::Options options;
  options.byte_fallback = options.fuse_unknown = true;
  for (size_t i = 0; i < source.tokens.size() && options.unknown_id < 0; ++i) {
    if (token_type_of(source, i) == kUnknownType) options.unknown_id = static_cast<int32_t>(i);
  }
  auto model = std::make_unique<BpeModel>(*parts.vocabulary, options, source.tokens.size() * 4);
  derive_merges(source, *parts.vocabulary, *model);
  if (const auto& bytes = model->bytes_before_marks()) parts.pre_tokenizer.add(make_mark_splitter(*bytes));
  parts.model = std::move(model);
}

}  // namespace quire
