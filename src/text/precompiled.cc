// The compiled character maps of SentencePiece: a trie of UTF-8 byte strings (a "Darts" double array), each with the
// place of its replacement in a block of zero-terminated texts.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/error.h"
#include "text/graphemes.h"
#include "text/normalizer.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace quire {
namespace {

class CharacterMap {
 public:
  explicit CharacterMap(const std::string& charsmap) {
    uint32_t trie_bytes = 0;
    const bool has_size = charsmap.size() >= sizeof trie_bytes;
    if (has_size) std::memcpy(&trie_bytes, charsmap.data(), sizeof trie_bytes);
    if (!has_size || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes == 0 ||
        trie_bytes > charsmap.size() - sizeof trie_bytes) {
      throw invalid_argument(
          fmt::format("precompiled_charsmap of {} bytes says that its trie has {} bytes", charsmap.size(), trie_bytes),
          "precompiled_charsmap");
    }
    units_.resize(trie_bytes / sizeof(uint32_t));
    std::memcpy(units_.data(), charsmap.data() + sizeof trie_bytes, trie_bytes);
    texts_ = charsmap.substr(sizeof trie_bytes + trie_bytes);
    if (!is_valid_utf8(texts_)) {
      throw invalid_argument("precompiled_charsmap holds texts that are not UTF-8", "precompiled_charsmap");
    }
  }

  // The text for the shortest, or the longest, prefix of key that is in the map; nullptr if there is none. length: of
  // that prefix. Replacements end at a zero byte.
  const char* find(std::string_view key, bool longest, size_t& length) const {
    const char* found = nullptr;
    size_t node = offset(units_[0]);
    for (size_t i = 0; i < key.size(); ++i) {
      const auto byte = static_cast<uint8_t>(key[i]);
      node ^= byte;
      if (byte == 0 || node >= units_.size() || label(units_[node]) != byte) break;
      const uint32_t unit = units_[node];
      node ^= offset(unit);
      if (!has_leaf(unit) || node >= units_.size()) continue;
      // A key that ends inside of a character matches nothing.
      if (i + 1 < key.size() && (static_cast<uint8_t>(key[i + 1]) & 0xC0) == 0x80) continue;
      const uint32_t place = units_[node] & 0x7FFFFFFF;
      if (place >= texts_.size() || (static_cast<uint8_t>(texts_[place]) & 0xC0) == 0x80) continue;
      found = texts_.c_str() + place;
      length = i + 1;
      if (!longest) break;
    }
    return found;
  }

 private:
  static bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
  static uint32_t label(uint32_t unit) { return unit & (0x80000000U | 0xFF); }
  static size_t offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & 0x200U) >> 6); }

  std::vector<uint32_t> units_;
  std::string texts_;
};

class PrecompiledStep final : public NormalizerStep {
 public:
  explicit PrecompiledStep(const std::string& charsmap) : map_(charsmap) {}

  std::string_view apply(std::string_view text, size_t limit, std::string& out) const override {
    // A cluster of up to 5 bytes is looked up as a whole, and the replacement of any prefix of it stands for all of it.
    constexpr ptrdiff_t kWholeCluster = 5;
    out.clear();
    const char *p = text.data(), *end = p + text.size();
    while (p < end) {
      const char* cluster = grapheme_end(p, end);
      if (cluster - p <= kWholeCluster && append_replacement(p, cluster, out)) {
        check_normalized_size(out.size(), limit);
        p = cluster;
        continue;
      }
      while (p < cluster) {
        const char* next = p;
        decode_valid_utf8(next);
        if (!append_replacement(p, next, out)) out.append(p, next);
        check_normalized_size(out.size(), limit);
        p = next;
      }
    }
    return out;
  }

 private:
  bool append_replacement(const char* p, const char* end, std::string& out) const {
    size_t length = 0;
    const char* found = map_.find({p, static_cast<size_t>(end - p)}, false, length);
    if (found != nullptr) out += found;
    return found != nullptr;
  }

  CharacterMap map_;
};

class SentencePieceStep final : public NormalizerStep {
 public:
  explicit SentencePieceStep(SentencePieceNormalization options) : options_(std::move(options)) {
    if (!options_.charsmap.empty()) map_ = std::make_unique<CharacterMap>(options_.charsmap);
  }

  std::string_view apply(std::string_view text, size_t limit, std::string& out) const override {
    out.clear();
    bool after_space = options_.remove_extra_whitespaces;  // spaces here are left out
    const char *p = text.data(), *end = p + text.size();
    while (p < end) {
      for (const char c : next_piece(p, end)) {
        if (c == ' ' && after_space) continue;
        if (c == ' ' && options_.escape_whitespaces) {
          out += kSpaceMark;
        } else {
          out += c;
        }
        after_space = c == ' ' && options_.remove_extra_whitespaces;
      }
      check_normalized_size(out.size(), limit);
    }
    if (options_.remove_extra_whitespaces) {
      const std::string_view space = options_.escape_whitespaces ? kSpaceMark : std::string_view(" ");
      while (out.ends_with(space)) out.resize(out.size() - space.size());
    }
    return out;
  }

 private:
  // What stands for the text at p, which moves on.
  std::string_view next_piece(const char*& p, const char* end) const {
    size_t length = 0;
    const char* found = map_ ? map_->find({p, static_cast<size_t>(end - p)}, true, length) : nullptr;
    const char* begin = p;
    if (found != nullptr) {
      p += length;
      return found;
    }
    decode_valid_utf8(p);
    return {begin, static_cast<size_t>(p - begin)};
  }

  SentencePieceNormalization options_;
  std::unique_ptr<CharacterMap> map_;
};

}  // namespace

std::unique_ptr<NormalizerStep> make_precompiled_step(const std::string& charsmap) {
  return std::make_unique<PrecompiledStep>(charsmap);
}

std::unique_ptr<NormalizerStep> make_sentence_piece_step(SentencePieceNormalization options) {
  return std::make_unique<SentencePieceStep>(std::move(options));
}

}  // namespace quire
