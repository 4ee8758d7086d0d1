// Builds a tokenizer from a SentencePiece model file.
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "text/sentence_piece.h"
#include "text/sentence_piece_model.h"
#include "text/unigram.h"

namespace quire {
namespace {

void build_unigram(const SentencePieceModel& source, PipelineTokenizer::Parts& parts) {
  add_vocabulary_tokens(source.vocabulary, {.mark_is_space = true, .byte_tokens = true}, parts);
  UnigramModel::Options options;
  options.byte_fallback = source.byte_fallback;
  options.single_precision = true;
  std::vector<double> scores(source.vocabulary.tokens.size(), UnigramModel::kNeverInText);
  for (size_t id = 0; id < scores.size(); ++id) {
    const int32_t type = token_type_of(source.vocabulary, id);
    if (type == kUnknownType && options.unknown_id < 0) options.unknown_id = static_cast<int32_t>(id);
    const bool in_text = type != kUnknownType && type != kControlType && type != kUserDefinedType &&
                         type != kUnusedType && type != kByteType;
    if (in_text) scores[id] = source.vocabulary.scores[id];
  }
  parts.model = std::make_unique<UnigramModel>(*parts.vocabulary, std::move(scores), options);
}

// add_bos_token and so on of tokenizer_config.json; otherwise if it doesn't say.
bool flag(const nlohmann::json& config, const char* name, bool otherwise) {
  const auto found = config.find(name);
  return found != config.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_sentence_piece(std::string_view model,
                                                         std::string_view tokenizer_config_json) {
  SentencePieceModel source = read_sentence_piece_model(model);
  const auto config = nlohmann::json::parse(
      tokenizer_config_json.empty() ? std::string_view("{}") : tokenizer_config_json, nullptr, false);
  if (!config.is_object()) throw invalid_argument("tokenizer_config.json: expected an object", "tokenizer_config.json");
  PipelineTokenizer::Parts parts;
  const bool bpe = source.type == SentencePieceModel::Type::kBpe;
  if (bpe) {
    build_sentence_piece_bpe(source.vocabulary, parts);
  } else {
    build_unigram(source, parts);
  }
  if (source.add_dummy_prefix) {
    parts.prefix_at_start = source.normalization.escape_whitespaces ? std::string(kSpaceMark) : " ";
    parts.leading_space = PipelineTokenizer::LeadingSpace::kDropOne;
  }
  if (source.normalization.remove_extra_whitespaces) parts.leading_space = PipelineTokenizer::LeadingSpace::kDropAll;
  parts.normalizer.add(make_sentence_piece_step(std::move(source.normalization)));
  parts.bos_id = source.vocabulary.bos_id;
  parts.eos_id = source.vocabulary.eos_id;
  if (flag(config, "add_bos_token", bpe) && parts.bos_id >= 0) parts.begin_ids.push_back(parts.bos_id);
  if (flag(config, "add_eos_token", false) && parts.eos_id >= 0) parts.end_ids.push_back(parts.eos_id);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace quire
