// Reads Hugging Face tokenizer.json: the large parts (vocabulary, merges, added tokens) with simdjson, the small ones
// as a tree.
#include <fmt/format.h>
#include <simdjson.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/pipeline_tokenizer.h"
#include "text/tokenizer_json_steps.h"
#include "text/unigram.h"
#include "text/word_piece.h"

namespace quire {
namespace {

namespace od = simdjson::ondemand;
using Json = nlohmann::json;

std::vector<AddedToken> read_added_tokens(od::value value) {
  std::vector<AddedToken> tokens;
  for (auto item : value.get_array()) {
    AddedToken token;
    for (auto field : item.get_object()) {
      const std::string_view name = field.unescaped_key();
      if (name == "id") {
        const int64_t id = field.value();
        if (id < 0 || id > Vocabulary::kMaxId) {
          throw invalid_argument(
              fmt::format("tokenizer.json: added_tokens: id {} is not within 0 to {}", id, Vocabulary::kMaxId),
              "added_tokens");
        }
        token.id = static_cast<int32_t>(id);
      } else if (name == "content") {
        token.content = std::string_view(field.value());
      } else if (name == "special") {
        token.special = field.value().get_bool();
      } else if (name == "normalized") {
        token.normalized = field.value().get_bool();
      } else if (name == "lstrip") {
        token.lstrip = field.value().get_bool();
      } else if (name == "rstrip") {
        token.rstrip = field.value().get_bool();
      } else if (name == "single_word") {
        token.single_word = field.value().get_bool();
      }
    }
    if (token.id < 0) throw invalid_argument("tokenizer.json: added_tokens: an entry has no id", "added_tokens");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// The two halves of a merge, written "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> merge_halves(od::value item, size_t index) {
  if (item.type() == od::json_type::string) {
    const std::string_view text = item.get_string();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
    throw invalid_argument(fmt::format("tokenizer.json: merges[{}] is {}, expected two tokens with one space between",
                                       index, quote(text, 100)),
                           "merges");
  }
  std::string_view halves[2];
  int count = 0;
  for (auto half : item.get_array()) {
    if (count == 2) {
      ++count;
      break;
    }
    halves[count++] = half.get_string();
  }
  if (count != 2) throw invalid_argument(fmt::format("tokenizer.json: merges[{}] is not a pair", index), "merges");
  return {halves[0], halves[1]};
}

void read_merges(od::array merges, bool byte_level, BpeModel& model) {
  BpeModel::MergeWriter writer(model, BpeModel::MergeWriter::Unknown::kThrow);
  std::string left_key, right_key;
  uint32_t rank = 0;
  for (auto item : merges) {
    auto [left, right] = merge_halves(item.value(), rank);
    if (byte_level) {
      left_key.clear();
      right_key.clear();
      if (!append_byte_level_decoded(left_key, left) || !append_byte_level_decoded(right_key, right)) {
        throw invalid_argument(fmt::format("tokenizer.json: merges[{}] joins {} and {}, which is not spelled in bytes",
                                           rank, quote(left), quote(right)),
                               "merges");
      }
      left = left_key;
      right = right_key;
    }
    writer.add(left, right, rank++);
  }
  writer.finish();
}

// The small fields of the model.
struct ModelFields {
  std::string type;
  bool ignore_merges = false, byte_fallback = false, fuse_unknown = false;
  std::string unknown_token, continuing_prefix, word_suffix;
  int64_t unknown_id = -1;
  size_t max_characters = 100;
};

ModelFields read_model_fields(od::object object) {
  ModelFields fields;
  bool has_merges = false, has_max_characters = false;
  for (auto field : object) {
    const std::string_view name = field.unescaped_key();
    has_merges = has_merges || name == "merges";
    if (name == "vocab" || name == "merges") continue;
    od::value value = field.value();
    if (value.is_null()) continue;
    if (name == "type") {
      fields.type = std::string_view(value.get_string());
    } else if (name == "ignore_merges") {
      fields.ignore_merges = value.get_bool();
    } else if (name == "byte_fallback") {
      fields.byte_fallback = value.get_bool();
    } else if (name == "fuse_unk") {
      fields.fuse_unknown = value.get_bool();
    } else if (name == "unk_token") {
      fields.unknown_token = std::string_view(value.get_string());
    } else if (name == "unk_id") {
      fields.unknown_id = value.get_int64();
    } else if (name == "max_input_chars_per_word") {
      fields.max_characters = value.get_uint64();
      has_max_characters = true;
    } else if (name == "continuing_subword_prefix") {
      fields.continuing_prefix = std::string_view(value.get_string());
    } else if (name == "end_of_word_suffix") {
      fields.word_suffix = std::string_view(value.get_string());
    } else if (name == "dropout") {
      const double dropout = value.get_double();
      if (dropout > 0) unsupported("model", fmt::format("dropout {}", dropout), "none");
    }
  }
  // Old files don't say it.
  if (fields.type.empty()) fields.type = has_merges || !has_max_characters ? "BPE" : "WordPiece";
  return fields;
}

void add_tokens_to_vocabulary(PipelineTokenizer::Parts& parts) {
  for (AddedToken& token : parts.added_tokens) {
    // What the model's vocabulary says about a token counts, whatever id the list of added tokens gives it.
    if (const int32_t id = parts.vocabulary->find_spelling(token.content); id >= 0) token.id = id;
    parts.vocabulary->add_verbatim(token.id, token.content, token.special);
  }
}

// {"token": id, ...}. An entry takes at least a handful of bytes, so the size of the file bounds what is reserved.
void read_vocabulary(od::object vocabulary, Vocabulary::Style style, PipelineTokenizer::Parts& parts) {
  parts.vocabulary = std::make_unique<Vocabulary>(style, vocabulary.count_fields());
  for (auto field : vocabulary) {
    const std::string_view spelling = field.unescaped_key();
    const int64_t id = field.value();
    parts.vocabulary->add(id, spelling);
  }
  add_tokens_to_vocabulary(parts);
}

int32_t unknown_id_of(const ModelFields& fields, const Vocabulary& vocabulary) {
  return fields.unknown_token.empty() ? -1 : vocabulary.find_spelling(fields.unknown_token);
}

// Of words cut by ByteLevel this model looks at each character of their spelling, not only at the bytes that these
// stand for. So its vocabulary is taken as it is spelled, and words are spelled like it.
void spell_words(Vocabulary::Style& style, PipelineTokenizer::Parts& parts) {
  if (!style.byte_level) return;
  style.byte_level = false;
  parts.pre_tokenizer.add_byte_spelling();
  parts.decoding = PipelineTokenizer::Decoding::kChain;
}

void read_bpe(od::object object, const ModelFields& fields, Vocabulary::Style style, PipelineTokenizer::Parts& parts) {
  if (!fields.continuing_prefix.empty() || !fields.word_suffix.empty()) spell_words(style, parts);
  read_vocabulary(object.find_field_unordered("vocab").get_object(), style, parts);
  BpeModel::Options options;
  options.ignore_merges = fields.ignore_merges;
  options.byte_fallback = fields.byte_fallback;
  options.fuse_unknown = fields.fuse_unknown;
  options.unknown_id = unknown_id_of(fields, *parts.vocabulary);
  options.continuing_prefix = fields.continuing_prefix;
  options.word_suffix = fields.word_suffix;
  od::array merges = object.find_field_unordered("merges");
  auto model = std::make_unique<BpeModel>(*parts.vocabulary, options, merges.count_elements());
  read_merges(merges, style.byte_level, *model);
  if (const auto& bytes = model->bytes_before_marks()) parts.pre_tokenizer.add(make_mark_splitter(*bytes));
  parts.model = std::move(model);
}

// [["token", score], ...], the place in the list is the id.
void read_unigram(od::object object, const ModelFields& fields, Vocabulary::Style style,
                  PipelineTokenizer::Parts& parts) {
  spell_words(style, parts);
  od::array pieces = object.find_field_unordered("vocab").get_array();
  parts.vocabulary = std::make_unique<Vocabulary>(style, pieces.count_elements());
  std::vector<double> scores;
  for (auto piece : pieces) {
    const auto id = static_cast<int64_t>(scores.size());
    int count = 0;
    for (auto half : piece.get_array()) {
      if (count == 0) {
        parts.vocabulary->add(id, std::string_view(half.get_string()));
      } else if (count == 1) {
        scores.push_back(half.get_double());
      }
      ++count;
    }
    if (count != 2) throw invalid_argument(fmt::format("tokenizer.json: vocab[{}] is not a pair", id), "vocab");
  }
  if (fields.unknown_id >= static_cast<int64_t>(scores.size()) || fields.unknown_id < -1) {
    throw invalid_argument(
        fmt::format("tokenizer.json: unk_id is {}, but there are {} tokens", fields.unknown_id, scores.size()),
        "unk_id");
  }
  add_tokens_to_vocabulary(parts);
  UnigramModel::Options options;
  options.unknown_id = static_cast<int32_t>(fields.unknown_id);
  options.byte_fallback = fields.byte_fallback;
  parts.model = std::make_unique<UnigramModel>(*parts.vocabulary, std::move(scores), options);
}

void read_model(od::object object, Vocabulary::Style style, PipelineTokenizer::Parts& parts) {
  const ModelFields fields = read_model_fields(object);
  object.reset();
  if (fields.type == "BPE") {
    read_bpe(object, fields, style, parts);
  } else if (fields.type == "Unigram") {
    read_unigram(object, fields, style, parts);
  } else if (fields.type == "WordPiece") {
    spell_words(style, parts);
    read_vocabulary(object.find_field_unordered("vocab").get_object(), style, parts);
    WordPieceModel::Options options;
    options.unknown_id = unknown_id_of(fields, *parts.vocabulary);
    options.continuing_prefix = fields.continuing_prefix;
    options.max_characters = fields.max_characters;
    parts.model = std::make_unique<WordPieceModel>(*parts.vocabulary, std::move(options));
  } else if (fields.type == "WordLevel") {
    read_vocabulary(object.find_field_unordered("vocab").get_object(), style, parts);
    parts.model = std::make_unique<WordLevelModel>(*parts.vocabulary, unknown_id_of(fields, *parts.vocabulary));
  } else {
    unsupported("model", fmt::format("type {}", quote(fields.type)), "BPE, Unigram, WordLevel, WordPiece");
  }
}

// The id of a token that tokenizer_config.json gives as a string or as an object; -1 if there is none.
int32_t configured_token(const Json& config, const char* field, const Vocabulary& vocabulary) {
  auto found = config.find(field);
  if (found == config.end()) return -1;
  const Json& token = found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  return token.is_string() ? vocabulary.find_spelling(token.get<std::string>()) : -1;
}

// An added token that is looked for in normalized text is what the normalizer makes of it, also when it is decoded.
void respell_normalized_tokens(PipelineTokenizer::Parts& parts) {
  Normalizer::Scratch scratch;
  for (const AddedToken& token : parts.added_tokens) {
    if (token.normalized) parts.vocabulary->respell(token.id, parts.normalizer.apply(token.content, scratch));
  }
}

struct Sections {
  Json normalizer, pre_tokenizer, post_processor, decoder;
};

PipelineTokenizer::Parts read(std::string_view tokenizer_json) {
  const simdjson::padded_string padded(tokenizer_json);
  od::parser parser;
  od::document document = parser.iterate(padded);
  PipelineTokenizer::Parts parts;
  Sections sections;
  bool has_model = false;
  for (auto field : document.get_object()) {
    const std::string_view name = field.unescaped_key();
    Json* section = name == "normalizer"       ? &sections.normalizer
                    : name == "pre_tokenizer"  ? &sections.pre_tokenizer
                    : name == "post_processor" ? &sections.post_processor
                    : name == "decoder"        ? &sections.decoder
                                               : nullptr;
    if (section != nullptr) {
      *section = Json::parse(std::string_view(simdjson::to_json_string(field.value())));
    } else if (name == "added_tokens") {
      parts.added_tokens = read_added_tokens(field.value());
    } else if (name == "model") {
      has_model = true;
    }
  }
  if (!has_model) throw invalid_argument("tokenizer.json: there is no model", "model");

  read_normalizer(sections.normalizer, parts.normalizer);
  const bool byte_level = read_pre_tokenizer(sections.pre_tokenizer, parts.pre_tokenizer);
  SpecialIds special = read_post_processor(sections.post_processor);
  parts.begin_ids = std::move(special.begin);
  parts.end_ids = std::move(special.end);

  const DecoderKind decoder = read_decoder(sections.decoder, parts.decoder);
  const bool sentence_piece = decoder == DecoderKind::kSentencePiece || decoder == DecoderKind::kSentencePieceStrip;
  if (decoder == DecoderKind::kSentencePieceStrip) parts.leading_space = PipelineTokenizer::LeadingSpace::kDropOne;
  parts.decoding = sentence_piece && !byte_level                      ? PipelineTokenizer::Decoding::kBytesOrChain
                   : decoder == DecoderKind::kByteLevel && byte_level ? PipelineTokenizer::Decoding::kBytes
                                                                      : PipelineTokenizer::Decoding::kChain;

  document.rewind();
  read_model(document.find_field("model").get_object(), {byte_level, sentence_piece, sentence_piece}, parts);
  respell_normalized_tokens(parts);
  if (parts.decoding == PipelineTokenizer::Decoding::kChain) {
    for (int32_t id = 0; id < parts.vocabulary->size(); ++id) {
      if (!parts.vocabulary->has(id)) continue;
      parts.vocabulary->set_bytes(id, parts.decoder.token_bytes(parts.vocabulary->spelling(id)));
    }
  }
  return parts;
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view tokenizer_json,
                                               std::string_view tokenizer_config_json) {
  try {
    PipelineTokenizer::Parts parts = read(tokenizer_json);
    const Json config = tokenizer_config_json.empty() ? Json::object() : Json::parse(tokenizer_config_json);
    if (!config.is_object())
      throw invalid_argument("tokenizer_config.json: expected an object", "tokenizer_config.json");
    parts.bos_id = configured_token(config, "bos_token", *parts.vocabulary);
    parts.eos_id = configured_token(config, "eos_token", *parts.vocabulary);
    return std::make_unique<PipelineTokenizer>(std::move(parts));
  } catch (const simdjson::simdjson_error& error) {
    throw invalid_argument(fmt::format("tokenizer.json: {}", error.what()), "tokenizer.json");
  } catch (const Json::exception& error) {
    throw invalid_argument(fmt::format("tokenizer.json or tokenizer_config.json: {}", error.what()), "tokenizer.json");
  }
}

}  // namespace quire
