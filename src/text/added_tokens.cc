#include "text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/quote.h"
#include "text/char_sets.h"
#include "text/unicode.h"

namespace quire {
namespace {

bool is_word(std::string_view text, const char* p) {
  if (p == text.data() + text.size()) return false;
  return word_characters().contains(decode_valid_utf8(p));
}

size_t spaces_begin(std::string_view text, size_t end, size_t floor) {
  const CharTable& table = CharTable::get();
  const char* p = text.data() + end;
  while (p > text.data() + floor) {
    const char* start = previous_character(text.data(), p);
    const char* q = start;
    if ((table[decode_valid_utf8(q)] & kSpace) == 0) break;
    p = start;
  }
  return static_cast<size_t>(p - text.data());
}

size_t spaces_end(std::string_view text, size_t begin) {
  const CharTable& table = CharTable::get();
  const char *p = text.data() + begin, *end = text.data() + text.size();
  while (p < end) {
    const char* next = p;
    if ((table[decode_valid_utf8(next)] & kSpace) == 0) break;
    p = next;
  }
  return static_cast<size_t>(p - text.data());
}

}  // namespace

void AddedTokenFinder::add(const AddedToken& token) {
  if (token.content.empty()) return;
  // A match must not end inside of a character: what follows is read as UTF-8.
  if (!is_valid_utf8(token.content)) {
    throw invalid_argument(fmt::format("added token {} is not UTF-8", quote(token.content, 32)), "added_tokens");
  }
  if (token.content.size() > kMaxContent) {
    throw invalid_argument(fmt::format("added token {} is {} bytes long, at most {} are allowed",
                                       quote(token.content, 32), token.content.size(), kMaxContent),
                           "added_tokens");
  }
  int32_t node = 0;
  for (const char c : token.content) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      auto& edges = nodes_[node].edges;
      const auto less = [](const Edge& edge, uint8_t b) { return edge.byte < b; };
      edges.insert(std::lower_bound(edges.begin(), edges.end(), byte, less), {byte, next});
      nodes_.emplace_back();
    }
    node = next;
  }
  first_bytes_[static_cast<uint8_t>(token.content[0])] = true;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.lstrip, token.rstrip, token.single_word});
}

int32_t AddedTokenFinder::child(int32_t node, uint8_t byte) const {
  const auto& edges = nodes_[node].edges;
  const auto less = [](const Edge& edge, uint8_t b) { return edge.byte < b; };
  const auto found = std::lower_bound(edges.begin(), edges.end(), byte, less);
  return found != edges.end() && found->byte == byte ? found->node : -1;
}

bool AddedTokenFinder::find(std::string_view text, size_t from, size_t floor, Match& match) const {
  if (tokens_.empty()) return false;
  for (size_t at = from; at < text.size();) {
    if (!first_bytes_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    int32_t token = -1;
    size_t end = at, i = at;
    for (int32_t node = 0; i < text.size();) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node < 0) break;
      ++i;
      if (nodes_[node].token >= 0) {
        token = nodes_[node].token;
        end = i;
      }
    }
    if (token < 0) {
      ++at;
      continue;
    }
    const Flags& flags = tokens_[token];
    const auto touched = [&] {
      const char* first = text.data() + at;
      return (at > 0 && is_word(text, previous_character(text.data(), first))) || is_word(text, text.data() + end);
    };
    if (end <= floor || (flags.single_word && touched())) {
      at = end;  // no shorter token is tried in its place
      continue;
    }
    match.begin = std::max(at, floor);
    match.end = end;
    match.next = end;
    match.id = flags.id;
    if (flags.lstrip) match.begin = std::min(match.begin, spaces_begin(text, at, std::min(floor, at)));
    if (flags.rstrip) match.end = spaces_end(text, end);
    return true;
  }
  return false;
}

}  // namespace quire
