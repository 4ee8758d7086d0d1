#include "engine/load_tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace quire {

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerFiles files) {
  if (files.gguf) {
    TokenizerFiles::Gguf& g = *files.gguf;
    GgufVocabulary v;
    v.model = std::move(g.model);
    v.pre = std::move(g.pre);
    v.tokens = std::move(g.tokens);
    v.merges = std::move(g.merges);
    v.scores = std::move(g.scores);
    v.token_types = std::move(g.token_types);
    v.bos_id = g.bos_id;
    v.eos_id = g.eos_id;
    v.add_bos = g.add_bos;
    v.add_eos = g.add_eos;
    v.add_space_prefix = g.add_space_prefix;
    return tokenizer_from_gguf(v);
  }
  if (!files.tokenizer_json.empty()) return tokenizer_from_json(files.tokenizer_json, files.tokenizer_config_json);
  if (!files.sentence_piece_model.empty()) {
    return tokenizer_from_sentence_piece(files.sentence_piece_model, files.tokenizer_config_json);
  }
  return nullptr;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name) {
  std::unique_ptr<Tokenizer> tokenizer;
  TokenizerFiles files = open_tokenizer_files(name);
  try {
    tokenizer = make_tokenizer(std::move(files));
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", name, error.what()), error.param());
  }
  if (!tokenizer) {
    throw not_found(
        fmt::format("{} has no tokenizer: neither tokenizer.json nor tokenizer.model nor GGUF metadata", name),
        "model");
  }
  return tokenizer;
}

}  // namespace quire
