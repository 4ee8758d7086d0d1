// Builds a tokenizer from GGUF metadata: model "gpt2" (byte-level, with merges) and "llama" (SentencePiece BPE, with
// scores).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/quote.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/pipeline_tokenizer.h"
#include "text/sentence_piece.h"

namespace quire {
namespace {

enum class Scheme { kDefault, kGpt2, kDigitGpt2, kFalcon, kLlama3, kCl100k, kQwen2, kDeepSeekV3, kO200k, kTekken };

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
    PreName{"jina-es", Scheme::kGpt2},
    PreName{"jina-de", Scheme::kGpt2},
    PreName{"jina-v1-en", Scheme::kGpt2},
    PreName{"jina-v2-es", Scheme::kGpt2},
    PreName{"jina-v2-de", Scheme::kGpt2},
    PreName{"jina-v2-code", Scheme::kGpt2},
    PreName{"roberta-bpe", Scheme::kGpt2},
    PreName{"gigachat", Scheme::kGpt2},
    PreName{"a.x-4.0", Scheme::kGpt2},
    PreName{"mellum", Scheme::kGpt2},
    PreName{"modern-bert", Scheme::kGpt2},
    PreName{"exaone4", Scheme::kGpt2},
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
    PreName{"falcon-h1", Scheme::kLlama3},
    PreName{"pixtral", Scheme::kLlama3},
    PreName{"midm-2.0", Scheme::kLlama3},
    PreName{"lfm2", Scheme::kLlama3},
    PreName{"jina-v5-nano", Scheme::kLlama3},
    PreName{"dbrx", Scheme::kCl100k},
    PreName{"smaug-bpe", Scheme::kCl100k},
    PreName{"chatglm-bpe", Scheme::kCl100k},
    PreName{"glm4", Scheme::kCl100k},
    PreName{"glm5", Scheme::kCl100k},
    PreName{"qwen2", Scheme::kQwen2},
    PreName{"deepseek-r1-qwen", Scheme::kQwen2},
    PreName{"kormo", Scheme::kQwen2},
    PreName{"f2llmv2", Scheme::kQwen2},
    PreName{"stablelm2", Scheme::kQwen2},
    PreName{"megrez", Scheme::kQwen2},
    PreName{"deepseek-v3", Scheme::kDeepSeekV3},
    PreName{"hunyuan-dense", Scheme::kDeepSeekV3},
    PreName{"joyai-llm", Scheme::kDeepSeekV3},
    PreName{"hy_v4", Scheme::kDeepSeekV3},
    PreName{"gpt-4o", Scheme::kO200k},
    PreName{"llama4", Scheme::kO200k},
    PreName{"kanana2", Scheme::kO200k},
    PreName{"talkie", Scheme::kO200k},
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
  throw invalid_argument(fmt::format("tokenizer.ggml.pre {} is not supported (supported: {})", quote(pre), names),
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
      pre_tokenizer.add(make_digit_splitter(true));
      pre_tokenizer.add(KnownPattern::kGpt2);
      break;
    case Scheme::kFalcon:
      add_regex(R"([\p{P}\$\+<=>\^~\|`]+)");
      pre_tokenizer.add(KnownPattern::kGpt2);
      add_regex("[0-9][0-9][0-9]");
      break;
    case Scheme::kLlama3:
    case Scheme::kCl100k:  // the same pattern, without Llama 3's other traits
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

// Merges whose parts are no tokens are left out, as they could never take place.
void read_merges(const GgufVocabulary& source, BpeModel& model) {
  BpeModel::MergeWriter writer(model, BpeModel::MergeWriter::Unknown::kSkip);
  std::string left, right;
  for (size_t i = 0; i < source.merges.size(); ++i) {
    const std::string_view merge = source.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) {
      throw invalid_argument(fmt::format("tokenizer.ggml.merges[{}] is {}, expected two tokens with one space between",
                                         i, quote(merge, 100)),
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

void build_byte_level(const GgufVocabulary& source, PipelineTokenizer::Parts& parts) {
  const Scheme scheme = scheme_of(source.pre);
  if (source.merges.empty())
    throw invalid_argument("tokenizer.ggml.merges is missing or empty", "tokenizer.ggml.merges");
  add_vocabulary_tokens(source, {.byte_level = true}, parts);
  BpeModel::Options options;
  options.ignore_merges = scheme == Scheme::kLlama3 || scheme == Scheme::kO200k || scheme == Scheme::kTekken;
  auto model = std::make_unique<BpeModel>(*parts.vocabulary, options, source.merges.size());
  read_merges(source, *model);
  parts.model = std::move(model);
  if (source.add_space_prefix.value_or(false)) {
    parts.pre_tokenizer.add(WordPrefix{"", " ", WordPrefix::Scheme::kAlways});
  }
  add_stages(scheme, parts.pre_tokenizer);
  if (scheme == Scheme::kQwen2) parts.normalizer.add(make_form_step(NormalizationForm::kC));
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_gguf(const GgufVocabulary& vocabulary) {
  check(vocabulary);
  PipelineTokenizer::Parts parts;
  bool add_bos = false;
  if (vocabulary.model == "gpt2") {
    build_byte_level(vocabulary, parts);
    add_bos = scheme_of(vocabulary.pre) == Scheme::kLlama3 || scheme_of(vocabulary.pre) == Scheme::kTekken;
  } else if (vocabulary.model == "llama") {
    build_sentence_piece_bpe(vocabulary, parts);
    const bool prefix = vocabulary.add_space_prefix.value_or(true);
    if (prefix) parts.leading_space = PipelineTokenizer::LeadingSpace::kDropOne;
    if (prefix) parts.normalizer.add(make_prepend_step(std::string(kSpaceMark)));
    parts.normalizer.add(make_replace_step(" ", std::string(kSpaceMark)));
    add_bos = true;
  } else {
    throw invalid_argument(
        fmt::format("tokenizer.ggml.model {} is not supported (supported: gpt2, llama)", quote(vocabulary.model)),
        "tokenizer.ggml.model");
  }
  parts.bos_id = vocabulary.bos_id;
  parts.eos_id = vocabulary.eos_id;
  if (vocabulary.add_bos.value_or(add_bos) && parts.bos_id >= 0) parts.begin_ids.push_back(parts.bos_id);
  if (vocabulary.add_eos.value_or(false) && parts.eos_id >= 0) parts.end_ids.push_back(parts.eos_id);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace quire
