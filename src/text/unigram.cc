#include "text/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/quote.h"
#include "text/unicode.h"

namespace quire {
namespace {

constexpr double kUnknownPenalty = 10;  // an unknown character scores this much less than the worst token

}  // namespace

UnigramModel::UnigramModel(const Vocabulary& vocabulary, std::vector<double> scores, Options options)
    : vocabulary_(vocabulary), scores_(std::move(scores)), options_(options) {
  unknown_score_ = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < scores_.size(); ++id) {
    if (scores_[id] == kNeverInText) continue;
    if (!std::isfinite(scores_[id])) {
      throw invalid_argument(fmt::format("the score of token {} is {}", id, scores_[id]), "vocab");
    }
    unknown_score_ = std::min(unknown_score_, scores_[id]);
    trie_.add(vocabulary.spelling(static_cast<int32_t>(id)), static_cast<int32_t>(id));
  }
  unknown_score_ = std::isfinite(unknown_score_) ? unknown_score_ - kUnknownPenalty : 0;
  for (int b = 0; b < 256; ++b) byte_ids_[b] = vocabulary.find(fmt::format("<0x{:02X}>", b));
}

void UnigramModel::append(std::string_view token, int32_t id, std::vector<int32_t>& out) const {
  if (id != options_.unknown_id) {
    out.push_back(id);
    return;
  }
  const auto is_byte_token = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; };
  if (const int32_t known = vocabulary_.find(token); known >= 0) {
    out.push_back(known);
  } else if (options_.byte_fallback && std::all_of(token.begin(), token.end(), is_byte_token)) {
    for (const char c : token) out.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  } else {
    out.push_back(id);
  }
}

void UnigramModel::encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  auto& steps = scratch.steps;
  steps.assign(word.size() + 1, {0, -1, 0});
  const auto offer = [&](size_t end, double score, int32_t id, size_t length) {
    if (options_.single_precision) score = static_cast<float>(score);
    ModelScratch::Step& step = steps[end];
    if (step.length == 0 || score > step.score) step = {score, id, static_cast<uint32_t>(length)};
  };
  for (size_t at = 0; at < word.size();) {
    const char* next = word.data() + at;
    decode_valid_utf8(next);
    const size_t after = static_cast<size_t>(next - word.data());
    const double score = steps[at].score;
    bool is_token = false;
    int32_t node = ByteTrie::kRoot;
    for (size_t end = at; end < word.size();) {
      node = trie_.child(node, static_cast<uint8_t>(word[end++]));
      if (node == ByteTrie::kNone) break;
      const int32_t id = trie_.value(node);
      if (id == ByteTrie::kNone) continue;
      offer(end, score + scores_[static_cast<size_t>(id)], id, end - at);
      is_token = is_token || end == after;
    }
    if (!is_token) {
      if (options_.unknown_id < 0) {
        throw invalid_argument(fmt::format("the tokenizer has neither a token for {} nor an unknown token (unk_id)",
                                           quote(word.substr(at, after - at))),
                               "prompt");
      }
      offer(after, score + unknown_score_, options_.unknown_id, after - at);
    }
    at = after;
  }
  // Backwards along the best way; the first token comes last, so the new part of out is turned around at the end.
  const size_t before = out.size();
  size_t unknown_end = 0;
  const auto flush_unknown = [&](size_t begin) {
    if (unknown_end == 0) return;
    const size_t from = out.size();
    append(word.substr(begin, unknown_end - begin), options_.unknown_id, out);
    std::reverse(out.begin() + static_cast<ptrdiff_t>(from), out.end());
    unknown_end = 0;
  };
  for (size_t end = word.size(); end > 0; end -= steps[end].length) {
    if (steps[end].id == options_.unknown_id) {
      if (unknown_end == 0) unknown_end = end;
      continue;
    }
    flush_unknown(end);
    out.push_back(steps[end].id);
  }
  flush_unknown(0);
  std::reverse(out.begin() + static_cast<ptrdiff_t>(before), out.end());
}

}  // namespace quire
