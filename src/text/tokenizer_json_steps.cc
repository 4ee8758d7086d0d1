#include "text/tokenizer_json_steps.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "text/base64.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 32;  // of Sequences within Sequences
constexpr size_t kDefaultFixedLength = 5;

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

// Exactly one character.
std::string character_field(const Json& node, const char* section, const char* field, std::string_view otherwise) {
  std::string text = string_field(node, field, std::string(otherwise));
  if (text.empty()) unsupported(section, fmt::format("{} \"\"", field), "one character");
  const char* p = text.data();
  decode_valid_utf8(p);
  if (p != text.data() + text.size()) {
    unsupported(section, fmt::format("{} {}", field, quote(text)), "one character");
  }
  return text;
}

// One character or more.
std::string text_field(const Json& node, const char* section, const char* field, const std::string& otherwise) {
  std::string text = string_field(node, field, otherwise);
  if (text.empty()) unsupported(section, fmt::format("{} \"\"", field), "one character or more");
  return text;
}

size_t count_field(const Json& node, const char* section, const char* field, size_t otherwise = 0) {
  const auto found = node.find(field);
  if (found == node.end()) return otherwise;
  if (!found->is_number_unsigned())
    unsupported(section, fmt::format("{} {}", field, found->is_structured() ? found->type_name() : found->dump()),
                "a count");
  return found->get<size_t>();
}

std::string charsmap_of(const Json& step) {
  std::string charsmap;
  if (!decode_base64(string_field(step, "precompiled_charsmap", ""), charsmap)) {
    unsupported("normalizer", "a precompiled_charsmap that is not base64", "base64");
  }
  return charsmap;
}

bool add_normalizer(const Json& step, const std::string& type, Normalizer& normalizer) {
  if (type == "NFC") {
    normalizer.add(make_form_step(NormalizationForm::kC));
  } else if (type == "NFD") {
    normalizer.add(make_form_step(NormalizationForm::kD));
  } else if (type == "NFKC") {
    normalizer.add(make_form_step(NormalizationForm::kKc));
  } else if (type == "NFKD") {
    normalizer.add(make_form_step(NormalizationForm::kKd));
  } else if (type == "Nmt") {
    normalizer.add(make_nmt_step());
  } else if (type == "Lowercase") {
    normalizer.add(make_lowercase_step());
  } else if (type == "StripAccents") {
    normalizer.add(make_strip_accents_step());
  } else if (type == "Strip") {
    normalizer.add(make_strip_step(bool_field(step, "strip_left", true), bool_field(step, "strip_right", true)));
  } else if (type == "Prepend") {
    normalizer.add(make_prepend_step(string_field(step, "prepend", "")));
  } else if (type == "ByteLevel") {
    normalizer.add(make_byte_level_step());
  } else if (type == "Precompiled") {
    if (const std::string charsmap = charsmap_of(step); !charsmap.empty()) {
      normalizer.add(make_precompiled_step(charsmap));
    }
  } else if (type == "BertNormalizer") {
    BertNormalization options;
    options.clean_text = bool_field(step, "clean_text", true);
    options.handle_chinese_chars = bool_field(step, "handle_chinese_chars", true);
    options.lowercase = bool_field(step, "lowercase", true);
    options.strip_accents = bool_field(step, "strip_accents", options.lowercase);
    normalizer.add(make_bert_step(options));
  } else {
    return false;
  }
  return true;
}

SplitBehavior behavior_of(const Json& step, const std::string& otherwise) {
  const std::string name = string_field(step, "behavior", otherwise);
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  unsupported("pre_tokenizer", fmt::format("behavior {}", quote(name)),
              "Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
}

void add_metaspace(const Json& step, PreTokenizer& pre_tokenizer) {
  WordPrefix prefix;
  prefix.mark = prefix.prefix = character_field(step, "pre_tokenizer", "replacement", kSpaceMark);
  const std::string scheme =
      string_field(step, "prepend_scheme", bool_field(step, "add_prefix_space", true) ? "always" : "never");
  if (scheme == "always") {
    prefix.scheme = WordPrefix::Scheme::kAlways;
  } else if (scheme == "first") {
    prefix.scheme = WordPrefix::Scheme::kFirst;
  } else if (scheme != "never") {
    unsupported("pre_tokenizer", fmt::format("prepend_scheme {}", quote(scheme)), "always, first, never");
  }
  const std::string mark = prefix.mark;
  pre_tokenizer.add(std::move(prefix));
  if (bool_field(step, "split", true)) {
    pre_tokenizer.add(make_literal_splitter(mark, SplitBehavior::kMergedWithNext, false));
  }
}

void add_byte_level(const Json& step, PreTokenizer& pre_tokenizer) {
  if (bool_field(step, "add_prefix_space", true)) pre_tokenizer.add(WordPrefix{"", " ", WordPrefix::Scheme::kAlways});
  if (bool_field(step, "use_regex", true)) pre_tokenizer.add(KnownPattern::kGpt2);
}

int32_t checked_id(const Json& id, std::string_view name) {
  const auto value = id.is_number_integer() ? id.get<int64_t>() : -1;
  if (value < 0 || value > Vocabulary::kMaxId) {
    throw invalid_argument(fmt::format("tokenizer.json: post_processor: id {} of {} is not an integer within 0 to {}",
                                       id.dump().substr(0, 40), quote(name), Vocabulary::kMaxId),
                           "post_processor");
  }
  return static_cast<int32_t>(value);
}

SpecialIds read_template(const Json& step) {
  SpecialIds ids;
  bool after_text = false;
  for (const Json& item : step.at("single")) {
    if (item.contains("Sequence")) {
      if (after_text) unsupported("post_processor", "template that names the text twice", "one Sequence");
      after_text = true;
      continue;
    }
    const std::string name = item.at("SpecialToken").at("id");
    for (const Json& id : step.at("special_tokens").at(name).at("ids")) {
      (after_text ? ids.end : ids.begin).push_back(checked_id(id, name));
    }
  }
  return ids;
}

// BERT's and RoBERTa's: ["[CLS]", 101] before and ["[SEP]", 102] after.
SpecialIds read_bert_processing(const Json& step) {
  SpecialIds ids;
  ids.begin.push_back(checked_id(step.at("cls").at(1), "cls"));
  ids.end.push_back(checked_id(step.at("sep").at(1), "sep"));
  return ids;
}

}  // namespace

void unsupported(std::string_view field, std::string_view what, std::string_view supported) {
  throw invalid_argument(fmt::format("tokenizer.json: {} {} is not supported (supported: {})", field, what, supported),
                         std::string(field));
}

void read_normalizer(const Json& node, Normalizer& normalizer) {
  for_each_step(node, "normalizer", "normalizers", [&](const Json& step, const std::string& type) {
    if (type == "Replace") {
      const Pattern pattern = pattern_of(step, "normalizer");
      std::string content = string_field(step, "content", "");
      normalizer.add(pattern.regex ? make_regex_replace_step(pattern.text, std::move(content))
                                   : make_replace_step(pattern.text, std::move(content)));
    } else if (!add_normalizer(step, type, normalizer)) {
      unsupported("normalizer", fmt::format("type {}", quote(type)),
                  "BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, Replace, "
                  "Sequence, Strip, "
                  "StripAccents");
    }
  });
}

bool read_pre_tokenizer(const Json& node, PreTokenizer& pre_tokenizer) {
  bool byte_level = false;
  for_each_step(node, "pre_tokenizer", "pretokenizers", [&](const Json& step, const std::string& type) {
    if (byte_level) unsupported("pre_tokenizer", fmt::format("{} after ByteLevel", quote(type)), "ByteLevel last");
    if (type == "ByteLevel") {
      byte_level = true;
      add_byte_level(step, pre_tokenizer);
    } else if (type == "Split") {
      const Pattern pattern = pattern_of(step, "pre_tokenizer");
      const auto make = pattern.regex ? make_regex_splitter : make_literal_splitter;
      pre_tokenizer.add(make(pattern.text, behavior_of(step, ""), bool_field(step, "invert", false)));
    } else if (type == "Digits") {
      pre_tokenizer.add(make_digit_splitter(bool_field(step, "individual_digits", false)));
    } else if (type == "Metaspace") {
      add_metaspace(step, pre_tokenizer);
    } else if (type == "BertPreTokenizer") {
      pre_tokenizer.add(make_bert_splitter());
    } else if (type == "Whitespace") {
      pre_tokenizer.add(make_word_splitter());
    } else if (type == "WhitespaceSplit") {
      pre_tokenizer.add(make_white_space_splitter());
    } else if (type == "Punctuation") {
      pre_tokenizer.add(make_punctuation_splitter(behavior_of(step, "Isolated")));
    } else if (type == "UnicodeScripts") {
      pre_tokenizer.add(make_script_splitter());
    } else if (type == "FixedLength") {
      const size_t length = count_field(step, "pre_tokenizer", "length", kDefaultFixedLength);
      if (length == 0) unsupported("pre_tokenizer", "length 0", "at least 1");
      pre_tokenizer.add(make_length_splitter(length));
    } else if (type == "CharDelimiterSplit") {
      const std::string delimiter = character_field(step, "pre_tokenizer", "delimiter", "");
      pre_tokenizer.add(make_literal_splitter(delimiter, SplitBehavior::kRemoved, false));
    } else {
      unsupported("pre_tokenizer", fmt::format("type {}", quote(type)),
                  "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, FixedLength, Metaspace, Punctuation, "
                  "Sequence, Split, UnicodeScripts, Whitespace, WhitespaceSplit");
    }
  });
  return byte_level;
}

DecoderKind read_decoder(const Json& node, Decoder& decoder) {
  std::string chain;  // one letter for each step of the well-known chains
  for_each_step(node, "decoder", "decoders", [&](const Json& step, const std::string& type) {
    char letter = '?';
    if (type == "ByteLevel") {
      letter = 'L';
      decoder.add(make_byte_level_decoder());
    } else if (type == "ByteFallback") {
      letter = 'B';
      decoder.add(make_byte_fallback_decoder());
    } else if (type == "Fuse") {
      letter = 'F';
      decoder.add(make_fuse_decoder());
    } else if (type == "Metaspace") {
      const std::string scheme =
          string_field(step, "prepend_scheme", bool_field(step, "add_prefix_space", true) ? "always" : "never");
      decoder.add(
          make_metaspace_decoder(character_field(step, "decoder", "replacement", kSpaceMark), scheme != "never"));
    } else if (type == "Strip") {
      const std::string content = character_field(step, "decoder", "content", " ");
      const size_t start = count_field(step, "decoder", "start"), stop = count_field(step, "decoder", "stop");
      if (content == " " && start == 1 && stop == 0) letter = 'S';
      decoder.add(make_strip_decoder(content, start, stop));
    } else if (type == "Replace") {
      const Pattern pattern = pattern_of(step, "decoder");
      std::string content = string_field(step, "content", "");
      if (!pattern.regex && pattern.text == kSpaceMark && content == " ") letter = 'R';
      decoder.add(pattern.regex ? make_regex_replace_decoder(pattern.text, std::move(content))
                                : make_replace_decoder(pattern.text, std::move(content)));
    } else if (type == "WordPiece") {
      decoder.add(make_word_piece_decoder(string_field(step, "prefix", "##"), bool_field(step, "cleanup", true)));
    } else if (type == "BPEDecoder") {
      decoder.add(make_bpe_decoder(text_field(step, "decoder", "suffix", "</w>")));
    } else if (type == "CTC") {
      decoder.add(make_ctc_decoder(string_field(step, "pad_token", "<pad>"),
                                   text_field(step, "decoder", "word_delimiter_token", "|"),
                                   bool_field(step, "cleanup", true)));
    } else {
      unsupported("decoder", fmt::format("type {}", quote(type)),
                  "BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece");
    }
    chain += letter;
  });
  if (chain == "L") return DecoderKind::kByteLevel;
  if (chain == "RBF") return DecoderKind::kSentencePiece;
  if (chain == "RBFS") return DecoderKind::kSentencePieceStrip;
  return DecoderKind::kOther;
}

SpecialIds read_post_processor(const Json& node) {
  SpecialIds all;
  for_each_step(node, "post_processor", "processors", [&](const Json& step, const std::string& type) {
    SpecialIds ids;
    if (type == "TemplateProcessing") {
      ids = read_template(step);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      ids = read_bert_processing(step);
    } else if (type != "ByteLevel") {
      unsupported("post_processor", fmt::format("type {}", quote(type)),
                  "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing");
    }
    // Each step works on what the ones before made.
    all.begin.insert(all.begin.begin(), ids.begin.begin(), ids.begin.end());
    all.end.insert(all.end.end(), ids.end.begin(), ids.end.end());
  });
  return all;
}

}  // namespace quire
