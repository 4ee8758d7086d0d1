#include "text/word_piece.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace quire {

WordPieceModel::WordPieceModel(const Vocabulary& vocabulary, Options options) : options_(std::move(options)) {
  if (options_.unknown_id < 0) throw invalid_argument("model: unk_token is not in the vocabulary", "unk_token");
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view key = vocabulary.spelling(id);
    if (key.empty() || vocabulary.find(key) != id) continue;  // an added token, or another token is spelled the same
    first_.add(key, id);
    if (key.starts_with(options_.continuing_prefix)) next_.add(key.substr(options_.continuing_prefix.size()), id);
  }
}

void WordPieceModel::encode(std::string_view word, ModelScratch&, std::vector<int32_t>& out) const {
  const size_t before = out.size();
  const auto characters = static_cast<size_t>(
      std::count_if(word.begin(), word.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
  bool known = characters <= options_.max_characters;
  for (size_t at = 0; known && at < word.size();) {
    const ByteTrie& trie = at == 0 ? first_ : next_;
    int32_t node = ByteTrie::kRoot, best = -1;
    size_t best_end = at;
    for (size_t end = at; end < word.size();) {
      node = trie.child(node, static_cast<uint8_t>(word[end++]));
      if (node == ByteTrie::kNone) break;
      if (trie.value(node) == ByteTrie::kNone) continue;
      best = trie.value(node);
      best_end = end;
    }
    known = best >= 0;
    if (known) out.push_back(best);
    at = best_end;
  }
  if (known) return;
  out.resize(before);
  out.push_back(options_.unknown_id);
}

void WordLevelModel::encode(std::string_view word, ModelScratch&, std::vector<int32_t>& out) const {
  const int32_t id = vocabulary_.find(word);
  if (id >= 0 || unknown_id_ >= 0) out.push_back(id >= 0 ? id : unknown_id_);
}

}  // namespace quire
