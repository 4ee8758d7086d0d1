// Reads Hugging Face tokenizer.json: the large parts (vocabulary, merges, added tokens) with simdjson, the small ones
// as a tree.
#include <fmt/format.h>
#include <simdjson.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "text/bpe_tokenizer.h"
#include "text/byte_level.h"

namespace quire {
namespace {

namespace od = simdjson::ondemand;
using Json = nlohmann::json;

constexpr int kMaxDepth = 32;  // of Sequences within Sequences

[[noreturn]] void unsupported(std::string_view field, std::string_view what, std::string_view supported) {
  throw invalid_argument(fmt::format("tokenizer.json: {} {} is not supported (supported: {})", field, what, supported),
                         std::string(field));
}

std::string type_of(const Json& node) {
  if (node.is_object() && node.contains("type") && node["type"].is_string()) return node["type"].get<std::string>();
  return {};
}

std::string string_field(const Json& node, const char* field, const std::string& otherwise) {
  const auto found = node.find(field);
  return found != node.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

bool bool_field(const Json& node, const char* field, bool otherwise) {
  const auto found = node.find(field);
  return found != node.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

// Calls visit(step) for node, or for each step of the Sequences that it consists of. list: the field of a Sequence that
// holds them.
template <class Visit>
void for_each_step(const Json& node, const char* field, const char* list, Visit&& visit, int depth = 0) {
  if (node.is_null()) return;
  if (type_of(node) != "Sequence") {
    visit(node, type_of(node));
    return;
  }
  if (depth == kMaxDepth)
    unsupported(field, fmt::format("nested {} deep", kMaxDepth + 1), fmt::format("{}", kMaxDepth));
  const auto steps = node.find(list);
  if (steps == node.end() || !steps->is_array()) unsupported(field, fmt::format("Sequence without {}", list), list);
  for (const Json& step : *steps) for_each_step(step, field, list, visit, depth + 1);
}

// {"String": "..."} or {"Regex": "..."}
struct Pattern {
  std::string text;
  bool regex;
};
Pattern pattern_of(const Json& step, const char* field) {
  const auto pattern = step.find("pattern");
  if (pattern != step.end() && pattern->is_object()) {
    if (pattern->contains("Regex") && (*pattern)["Regex"].is_string()) return {(*pattern)["Regex"], true};
    if (pattern->contains("String") && (*pattern)["String"].is_string()) return {(*pattern)["String"], false};
  }
  unsupported(field, "pattern", "String, Regex");
}

void read_normalizer(const Json& node, Normalizer& normalizer) {
  for_each_step(node, "normalizer", "normalizers", [&](const Json& step, const std::string& type) {
    if (type == "NFC") {
      normalizer.add_nfc();
    } else if (type == "Prepend") {
      normalizer.add_prepend(string_field(step, "prepend", ""));
    } else if (type == "Replace") {
      const Pattern pattern = pattern_of(step, "normalizer");
      if (pattern.regex) unsupported("normalizer", "Replace of a Regex", "Replace of a String");
      normalizer.add_replace(pattern.text, string_field(step, "content", ""));
    } else {
      unsupported("normalizer", fmt::format("type {:?}", type), "NFC, Prepend, Replace, Sequence");
    }
  });
}

SplitBehavior behavior_of(const Json& step) {
  const std::string name = string_field(step, "behavior", "");
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  unsupported("pre_tokenizer", fmt::format("behavior {:?}", name),
              "Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
}

void read_metaspace(const Json& step, BpeTokenizer::Parts& parts) {
  parts.mark = parts.prefix = string_field(step, "replacement", std::string(kSpaceMark));
  const std::string scheme =
      string_field(step, "prepend_scheme", bool_field(step, "add_prefix_space", true) ? "always" : "never");
  parts.prefix_scheme = scheme == "never"   ? BpeTokenizer::PrefixScheme::kNever
                        : scheme == "first" ? BpeTokenizer::PrefixScheme::kFirst
                                            : BpeTokenizer::PrefixScheme::kAlways;
  if (bool_field(step, "split", true)) {
    parts.pre_tokenizer.add(make_literal_splitter(parts.mark, SplitBehavior::kMergedWithNext, false));
  }
}

// Returns whether words are spelled in the byte-level alphabet.
bool read_pre_tokenizer(const Json& node, BpeTokenizer::Parts& parts) {
  bool byte_level = false;
  int stages = 0;
  for_each_step(node, "pre_tokenizer", "pretokenizers", [&](const Json& step, const std::string& type) {
    if (byte_level) unsupported("pre_tokenizer", fmt::format("{} after ByteLevel", type), "ByteLevel last");
    const auto needs_first = [&](const char* what) {
      if (stages > 0) unsupported("pre_tokenizer", fmt::format("{} after other steps", what), "as the first step");
    };
    if (type == "ByteLevel") {
      byte_level = true;
      if (bool_field(step, "add_prefix_space", true)) {
        needs_first("ByteLevel with add_prefix_space");
        parts.prefix = " ";
        parts.prefix_scheme = BpeTokenizer::PrefixScheme::kAlways;
      }
      if (bool_field(step, "use_regex", true)) parts.pre_tokenizer.add(KnownPattern::kGpt2);
    } else if (type == "Split") {
      const Pattern pattern = pattern_of(step, "pre_tokenizer");
      const auto make = pattern.regex ? make_regex_splitter : make_literal_splitter;
      parts.pre_tokenizer.add(make(pattern.text, behavior_of(step), bool_field(step, "invert", false)));
    } else if (type == "Digits") {
      const bool individual = bool_field(step, "individual_digits", false);
      parts.pre_tokenizer.add(individual ? make_splitter(KnownPattern::kDigit)
                                         : make_regex_splitter("\\p{N}+", SplitBehavior::kIsolated, false));
    } else if (type == "Metaspace") {
      needs_first("Metaspace");
      read_metaspace(step, parts);
    } else {
      unsupported("pre_tokenizer", fmt::format("type {:?}", type), "ByteLevel, Split, Digits, Metaspace, Sequence");
    }
    ++stages;
  });
  return byte_level;
}

struct DecoderTraits {
  bool byte_level = false, mark_is_space = false, byte_tokens = false, strip_leading_space = false;
};
DecoderTraits read_decoder(const Json& node) {
  DecoderTraits traits;
  for_each_step(node, "decoder", "decoders", [&](const Json& step, const std::string& type) {
    if (type == "ByteLevel") {
      traits.byte_level = true;
    } else if (type == "ByteFallback") {
      traits.byte_tokens = true;
    } else if (type == "Metaspace") {
      traits.mark_is_space = string_field(step, "replacement", std::string(kSpaceMark)) == kSpaceMark;
      traits.strip_leading_space = string_field(step, "prepend_scheme", "always") != "never";
    } else if (type == "Strip") {
      if (step.value("content", "") != " " || step.value("start", 0) > 1 || step.value("stop", 0) != 0) {
        unsupported("decoder", fmt::format("Strip {}", step.dump()), "one space at the start");
      }
      traits.strip_leading_space = step.value("start", 0) == 1;
    } else if (type == "Replace") {
      const Pattern pattern = pattern_of(step, "decoder");
      if (pattern.regex || pattern.text != kSpaceMark || string_field(step, "content", "") != " ") {
        unsupported("decoder", fmt::format("Replace {}", step.dump()), "U+2581 by a space");
      }
      traits.mark_is_space = true;
    } else if (type != "Fuse") {
      unsupported("decoder", fmt::format("type {:?}", type),
                  "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, Sequence");
    }
  });
  return traits;
}

void read_template(const Json& step, BpeTokenizer::Parts& parts) {
  bool after_text = false;
  for (const Json& item : step.at("single")) {
    if (item.contains("Sequence")) {
      if (after_text) unsupported("post_processor", "template that names the text twice", "one Sequence");
      after_text = true;
      continue;
    }
    const std::string name = item.at("SpecialToken").at("id");
    for (const Json& id : step.at("special_tokens").at(name).at("ids")) {
      const auto value = id.get<int64_t>();
      if (value < 0 || value > Vocabulary::kMaxId) {
        throw invalid_argument(fmt::format("tokenizer.json: post_processor: id {} of {:?} is not within 0 to {}", value,
                                           name, Vocabulary::kMaxId),
                               "post_processor");
      }
      (after_text ? parts.end_ids : parts.begin_ids).push_back(static_cast<int32_t>(value));
    }
  }
}

void read_post_processor(const Json& node, BpeTokenizer::Parts& parts) {
  for_each_step(node, "post_processor", "processors", [&](const Json& step, const std::string& type) {
    if (type == "TemplateProcessing") {
      read_template(step, parts);
    } else if (type != "ByteLevel") {
      unsupported("post_processor", fmt::format("type {:?}", type), "TemplateProcessing, ByteLevel, Sequence");
    }
  });
}

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
    throw invalid_argument(fmt::format("tokenizer.json: merges[{}] is {:?}, expected two tokens with one space between",
                                       index, text.substr(0, 100)),
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
        throw invalid_argument(
            fmt::format("tokenizer.json: merges[{}] joins {:?} and {:?}, which is not spelled in bytes", rank,
                        left.substr(0, 64), right.substr(0, 64)),
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
  BpeModel::Options options;
  std::string unknown_token;
};
ModelFields read_model_fields(od::object object) {
  ModelFields fields;
  std::string type = "BPE";  // old files do not say it
  for (auto field : object) {
    const std::string_view name = field.unescaped_key();
    if (name == "vocab" || name == "merges") continue;
    od::value value = field.value();
    if (value.is_null()) continue;
    if (name == "type") {
      type = std::string_view(value.get_string());
    } else if (name == "ignore_merges") {
      fields.options.ignore_merges = value.get_bool();
    } else if (name == "byte_fallback") {
      fields.options.byte_fallback = value.get_bool();
    } else if (name == "fuse_unk") {
      fields.options.fuse_unknown = value.get_bool();
    } else if (name == "unk_token") {
      fields.unknown_token = std::string_view(value.get_string());
    } else if (name == "continuing_subword_prefix" || name == "end_of_word_suffix") {
      const std::string_view text = value.get_string();
      if (!text.empty()) unsupported("model", fmt::format("{} {:?}", name, text), "none");
    } else if (name == "dropout") {
      const double dropout = value.get_double();
      if (dropout > 0) unsupported("model", fmt::format("dropout {}", dropout), "none");
    }
  }
  if (type != "BPE") unsupported("model", fmt::format("type {:?}", type), "BPE");
  return fields;
}

void read_model(od::object object, Vocabulary::Style style, BpeTokenizer::Parts& parts) {
  ModelFields fields = read_model_fields(object);
  object.reset();
  // An entry of either list takes at least a handful of bytes, so the size of the file bounds what is reserved.
  od::object vocabulary = object.find_field_unordered("vocab");
  const size_t tokens = vocabulary.count_fields();
  parts.vocabulary = std::make_unique<Vocabulary>(style, tokens);
  for (auto field : vocabulary) {
    const std::string_view spelling = field.unescaped_key();
    const int64_t id = field.value();
    parts.vocabulary->add(id, spelling);
  }
  for (AddedToken& token : parts.added_tokens) {
    // What the model's vocabulary says about a token counts, whatever id the list of added tokens gives it.
    if (const int32_t id = parts.vocabulary->find_spelling(token.content); id >= 0) token.id = id;
    parts.vocabulary->add_verbatim(token.id, token.content, token.special);
  }
  if (!fields.unknown_token.empty()) fields.options.unknown_id = parts.vocabulary->find_spelling(fields.unknown_token);

  od::array merges = object.find_field_unordered("merges");
  parts.model = std::make_unique<BpeModel>(*parts.vocabulary, fields.options, merges.count_elements());
  read_merges(merges, style.byte_level, *parts.model);
}

// The id of a token that tokenizer_config.json gives as a string or as an object; -1 if there is none.
int32_t configured_token(const Json& config, const char* field, const Vocabulary& vocabulary) {
  const auto found = config.find(field);
  if (found == config.end()) return -1;
  if (found->is_string()) return vocabulary.find_spelling(found->get<std::string>());
  return found->is_object() ? vocabulary.find_spelling(string_field(*found, "content", "")) : -1;
}

struct Sections {
  Json normalizer, pre_tokenizer, post_processor, decoder;
};

BpeTokenizer::Parts read(std::string_view tokenizer_json) {
  const simdjson::padded_string padded(tokenizer_json);
  od::parser parser;
  od::document document = parser.iterate(padded);
  BpeTokenizer::Parts parts;
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
  const DecoderTraits decoder = read_decoder(sections.decoder);
  const bool byte_level = read_pre_tokenizer(sections.pre_tokenizer, parts);
  if (byte_level != decoder.byte_level) {
    unsupported("decoder",
                byte_level ? "other than ByteLevel with a ByteLevel pre_tokenizer"
                           : "ByteLevel without a ByteLevel pre_tokenizer",
                "the same in both");
  }
  read_post_processor(sections.post_processor, parts);
  parts.strip_leading_space = decoder.strip_leading_space;

  document.rewind();
  read_model(document.find_field("model").get_object(), {byte_level, decoder.mark_is_space, decoder.byte_tokens},
             parts);
  if (const auto& bytes = parts.model->bytes_before_marks()) parts.pre_tokenizer.add(make_mark_splitter(*bytes));
  return parts;
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view tokenizer_json,
                                               std::string_view tokenizer_config_json) {
  try {
    BpeTokenizer::Parts parts = read(tokenizer_json);
    const Json config = tokenizer_config_json.empty() ? Json::object() : Json::parse(tokenizer_config_json);
    if (!config.is_object())
      throw invalid_argument("tokenizer_config.json: expected an object", "tokenizer_config.json");
    parts.bos_id = configured_token(config, "bos_token", *parts.vocabulary);
    parts.eos_id = configured_token(config, "eos_token", *parts.vocabulary);
    return std::make_unique<BpeTokenizer>(std::move(parts));
  } catch (const simdjson::simdjson_error& error) {
    throw invalid_argument(fmt::format("tokenizer.json: {}", error.what()), "tokenizer.json");
  } catch (const Json::exception& error) {
    throw invalid_argument(fmt::format("tokenizer.json or tokenizer_config.json: {}", error.what()), "tokenizer.json");
  }
}

}  // namespace quire
