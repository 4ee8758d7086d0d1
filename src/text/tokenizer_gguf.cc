// Builds a tokenizer from GGUF metadata: model "gpt2" (byte-level, with merges) and "llama" (SentencePiece BPE, with
// scores).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/error.h"
#include "text/bpe_tokenizer.h"
#include "text/byte_level.h"
#include "text/unicode.h"

namespace quire {
namespace {

constexpr int32_t kUnknownType = 2, kControlType = 3, kUserDefinedType = 4, kUnusedType = 5, kByteType = 6;

enum class Scheme { kDefault, kGpt2, kDigitGpt2, kFalcon, kLlama3, kQwen2, kDeepSeekV3, kO200k, kTekken };

struct PreName {
  std::string_view name;
  Scheme scheme;
};
constexpr std::array kPreNames = {
    PreName{"default", Scheme::kDefault},
    PreName{"", Scheme::kDefault},
    PreName{"gpt-2", Scheme::kGpt2},
    PreName{"mpt", Scheme::kGpt2},
    PreName{"olmo", Scheme::kGpt2},
    PreName{"phi-2", Scheme::kGpt2},
    PreName{"jais", Scheme::kGpt2},
    PreName{"granite-docling", Scheme::kGpt2},
    PreName{"smollm", Scheme::kDigitGpt2},
    PreName{"starcoder", Scheme::kDigitGpt2},
    PreName{"refact", Scheme::kDigitGpt2},
    PreName{"command-r", Scheme::kDigitGpt2},
    PreName{"codeshell", Scheme::kDigitGpt2},
    PreName{"exaone", Scheme::kDigitGpt2},
    PreName{"minerva-7b", Scheme::kDigitGpt2},
    PreName{"falcon", Scheme::kFalcon},
    PreName{"llama-bpe", Scheme::kLlama3},
    PreName{"llama3", Scheme::kLlama3},
    PreName{"llama-v3", Scheme::kLlama3},
    PreName{"falcon3", Scheme::kLlama3},
    PreName{"dbrx", Scheme::kLlama3},
    PreName{"smaug-bpe", Scheme::kLlama3},
    PreName{"qwen2", Scheme::kQwen2},
    PreName{"deepseek-r1-qwen", Scheme::kQwen2},
    PreName{"stablelm2", Scheme::kQwen2},
    PreName{"megrez", Scheme::kQwen2},
    PreName{"deepseek-v3", Scheme::kDeepSeekV3},
    PreName{"gpt-4o", Scheme::kO200k},
    PreName{"llama4", Scheme::kO200k},
    PreName{"tekken", Scheme::kTekken},
};

Scheme scheme_of(std::string_view pre) {
  const auto same = [&](const PreName& known) { return known.name == pre; };
  const auto found = std::find_if(kPreNames.begin(), kPreNames.end(), same);
  if (found != kPreNames.end()) return found->scheme;
  std::string names;
  for (const PreName& known : kPreNames) {
    if (!known.name.empty()) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  }
  throw invalid_argument(
      fmt::format("tokenizer.ggml.pre {:?} is not supported (supported: {})", pre.substr(0, 64), names),
      "tokenizer.ggml.pre");
}

void add_stages(Scheme scheme, PreTokenizer& pre_tokenizer) {
  const auto add_regex = [&](const char* pattern) {
    pre_tokenizer.add(make_regex_splitter(pattern, SplitBehavior::kIsolated, false));
  };
  switch (scheme) {
    case Scheme::kDefault:
      add_regex(R"([\p{P}\$\+<=>\^~\|]+)");
      pre_tokenizer.add(KnownPattern::kGpt2);
      add_regex(R"(\p{N}+)");
      add_regex("[0-9][0-9][0-9]");
      break;
    case Scheme::kGpt2:
      pre_tokenizer.add(KnownPattern::kGpt2);
      break;
    case Scheme::kDigitGpt2:
      pre_tokenizer.add(KnownPattern::kDigit);
      pre_tokenizer.add(KnownPattern::kGpt2);
      break;
    case Scheme::kFalcon:
      add_regex(R"([\p{P}\$\+<=>\^~\|`]+)");
      pre_tokenizer.add(KnownPattern::kGpt2);
      add_regex("[0-9][0-9][0-9]");
      break;
    case Scheme::kLlama3:
      pre_tokenizer.add(KnownPattern::kLlama3);
      break;
    case Scheme::kQwen2:
      pre_tokenizer.add(KnownPattern::kQwen2);
      break;
    case Scheme::kDeepSeekV3:
      pre_tokenizer.add(KnownPattern::kDigits3);
      pre_tokenizer.add(KnownPattern::kDeepSeekCjk);
      pre_tokenizer.add(KnownPattern::kDeepSeekV3);
      break;
    case Scheme::kO200k:
      pre_tokenizer.add(KnownPattern::kO200k);
      break;
    case Scheme::kTekken:
      add_regex(
          R"([^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+)"
          R"(((?=[\p{L}])([^A-Z]))*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
      break;
  }
}

int32_t type_of(const GgufVocabulary& source, size_t id) {
  return source.token_types.empty() ? 1 : source.token_types[id];
}

void check(const GgufVocabulary& source) {
  const size_t tokens = source.tokens.size();
  if (tokens == 0) throw invalid_argument("tokenizer.ggml.tokens is empty", "tokenizer.ggml.tokens");
  if (!source.token_types.empty() && source.token_types.size() != tokens) {
    throw invalid_argument(
        fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens", source.token_types.size(), tokens),
        "tokenizer.ggml.token_type");
  }
  const auto check_id = [&](int32_t id, const char* field) {
    if (id < -1 || id >= static_cast<int64_t>(tokens)) {
      throw invalid_argument(fmt::format("{} is {}, but there are {} tokens", field, id, tokens), field);
    }
  };
  check_id(source.bos_id, "tokenizer.ggml.bos_token_id");
  check_id(source.eos_id, "tokenizer.ggml.eos_token_id");
}

void add_tokens(const GgufVocabulary& source, Vocabulary::Style style, BpeTokenizer::Parts& parts) {
  parts.vocabulary = std::make_unique<Vocabulary>(style, source.tokens.size());
  for (size_t i = 0; i < source.tokens.size(); ++i) {
    const int32_t type = type_of(source, i);
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

// Merges whose parts are no tokens are left out, as they could never take place.
void read_merges(const GgufVocabulary& source, BpeModel& model) {
  BpeModel::MergeWriter writer(model, BpeModel::MergeWriter::Unknown::kSkip);
  std::string left, right;
  for (size_t i = 0; i < source.merges.size(); ++i) {
    const std::string_view merge = source.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) {
      throw invalid_argument(
          fmt::format("tokenizer.ggml.merges[{}] is {:?}, expected two tokens with one space between", i,
                      merge.substr(0, 100)),
          "tokenizer.ggml.merges");
    }
    left.clear();
    right.clear();
    if (append_byte_level_decoded(left, merge.substr(0, space)) &&
        append_byte_level_decoded(right, merge.substr(space + 1))) {
      writer.add(left, right, static_cast<uint32_t>(i));
    }
  }
  writer.finish();
}

void build_byte_level(const GgufVocabulary& source, BpeTokenizer::Parts& parts) {
  const Scheme scheme = scheme_of(source.pre);
  if (source.merges.empty())
    throw invalid_argument("tokenizer.ggml.merges is missing or empty", "tokenizer.ggml.merges");
  add_tokens(source, {.byte_level = true}, parts);
  BpeModel::Options options;
  options.ignore_merges = scheme == Scheme::kLlama3 || scheme == Scheme::kO200k || scheme == Scheme::kTekken;
  parts.model = std::make_unique<BpeModel>(*parts.vocabulary, options, source.merges.size());
  read_merges(source, *parts.model);
  add_stages(scheme, parts.pre_tokenizer);
  if (scheme == Scheme::kQwen2) parts.normalizer.add_nfc();
  if (source.add_space_prefix.value_or(false)) {
    parts.prefix.assign(1, ' ');
    parts.prefix_scheme = BpeTokenizer::PrefixScheme::kAlways;
  }
}

// SentencePiece merges whichever neighbours make the token of the best score, so each way to cut a token in two is a
// merge of that token's rank.
void derive_merges(const GgufVocabulary& source, const Vocabulary& vocabulary, BpeModel& model) {
  BpeModel::MergeWriter writer(model, BpeModel::MergeWriter::Unknown::kSkip);
  std::vector<float> ranks = source.scores;
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  for (size_t i = 0; i < source.tokens.size(); ++i) {
    const int32_t type = type_of(source, i);
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

void build_sentence_piece(const GgufVocabulary& source, BpeTokenizer::Parts& parts) {
  if (source.scores.size() != source.tokens.size()) {
    throw invalid_argument(
        fmt::format("tokenizer.ggml.scores has {} entries for {} tokens", source.scores.size(), source.tokens.size()),
        "tokenizer.ggml.scores");
  }
  if (std::any_of(source.scores.begin(), source.scores.end(), [](float score) { return score != score; })) {
    throw invalid_argument("tokenizer.ggml.scores holds a NaN", "tokenizer.ggml.scores");
  }
  add_tokens(source, {.mark_is_space = true, .byte_tokens = true}, parts);
  BpeModel::Options options;
  options.byte_fallback = options.fuse_unknown = true;
  for (size_t i = 0; i < source.tokens.size() && options.unknown_id < 0; ++i) {
    if (type_of(source, i) == kUnknownType) options.unknown_id = static_cast<int32_t>(i);
  }
  parts.model = std::make_unique<BpeModel>(*parts.vocabulary, options, source.tokens.size() * 4);
  derive_merges(source, *parts.vocabulary, *parts.model);
  parts.strip_leading_space = source.add_space_prefix.value_or(true);
  if (parts.strip_leading_space) parts.normalizer.add_prepend(std::string(kSpaceMark));
  parts.normalizer.add_replace(" ", std::string(kSpaceMark));
  if (const auto& bytes = parts.model->bytes_before_marks()) parts.pre_tokenizer.add(make_mark_splitter(*bytes));
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_gguf(const GgufVocabulary& vocabulary) {
  check(vocabulary);
  BpeTokenizer::Parts parts;
  bool add_bos = false;
  if (vocabulary.model == "gpt2") {
    build_byte_level(vocabulary, parts);
    add_bos = scheme_of(vocabulary.pre) == Scheme::kLlama3 || scheme_of(vocabulary.pre) == Scheme::kTekken;
  } else if (vocabulary.model == "llama") {
    build_sentence_piece(vocabulary, parts);
    add_bos = true;
  } else {
    throw invalid_argument(fmt::format("tokenizer.ggml.model {:?} is not supported (supported: gpt2, llama)",
                                       vocabulary.model.substr(0, 64)),
                           "tokenizer.ggml.model");
  }
  parts.bos_id = vocabulary.bos_id;
  parts.eos_id = vocabulary.eos_id;
  if (vocabulary.add_bos.value_or(add_bos) && parts.bos_id >= 0) parts.begin_ids.push_back(parts.bos_id);
  if (vocabulary.add_eos.value_or(false) && parts.eos_id >= 0) parts.end_ids.push_back(parts.eos_id);
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace quire
