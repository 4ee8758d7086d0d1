#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/quote.h"
#include "text/byte_level.h"

namespace quire {
int byte_token_value(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return -1;
  int value = 0;
  for (const char c : spelling.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

uint32_t Vocabulary::hash_of(std::string_view key) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  const char* p = key.data();
  const size_t n = key.size();
  uint64_t hash = n * kMultiplier;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
  };
  const auto load64 = [](const char* from) {
    uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
  };
  const auto load32 = [](const char* from) {
    uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return static_cast<uint64_t>(word);
  };
  if (n >= 8) {
    for (size_t i = 0; i + 8 < n; i += 8) mix(load64(p + i));
    mix(load64(p + n - 8));
  } else if (n >= 4) {
    mix(load32(p) | load32(p + n - 4) << 32);
  } else if (n > 0) {
    const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(p[i])); };
    mix(byte(0) | byte(n / 2) << 8 | byte(n - 1) << 16);
  }
  return static_cast<uint32_t>(hash >> 32);
}

Vocabulary::Vocabulary(Style style, size_t expected_tokens) : style_(style) {
  // A hint only: what a file claims must not decide how much is allocated.
  const size_t tokens = std::min(expected_tokens, static_cast<size_t>(kMaxId) + 1);
  entries_.reserve(tokens);
  arena_.reserve(tokens * 16);
  slots_.resize(std::bit_ceil(tokens * 2 + 16));
}

Vocabulary::Entry& Vocabulary::entry(int64_t id, std::string_view spelling) {
  if (id < 0 || id > kMaxId) {
    throw invalid_argument(fmt::format("token {} has the id {}, but ids are 0 to {}", quote(spelling), id, kMaxId),
                           "vocab");
  }
  if (id >= size()) entries_.resize(static_cast<size_t>(id) + 1);
  return entries_[static_cast<size_t>(id)];
}

Vocabulary::Text Vocabulary::store(std::string_view text) {
  if (text.size() > UINT32_MAX - arena_.size()) throw invalid_argument("the tokens take more than 4 GiB", "vocab");
  const Text stored{static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(text.size())};
  arena_ += text;
  return stored;
}

Vocabulary::Text Vocabulary::store_bytes(std::string_view spelling) {
  if (style_.byte_tokens) {
    if (const int value = byte_token_value(spelling); value >= 0) {
      const char byte = static_cast<char>(value);
      return store({&byte, 1});
    }
  }
  if (!style_.mark_is_space) return store(spelling);
  std::string text;
  for (size_t at = 0; at < spelling.size();) {
    const bool mark = spelling.substr(at).starts_with(kSpaceMark);
    text += mark ? ' ' : spelling[at];
    at += mark ? kSpaceMark.size() : 1;
  }
  return store(text);
}

void Vocabulary::add(int64_t id, std::string_view spelling) {
  Entry& token = entry(id, spelling);
  token.present = true;
  token.spelling = store(spelling);
  if (style_.byte_level) {
    const size_t begin = arena_.size();
    if (!append_byte_level_decoded(arena_, spelling)) {
      // Written with characters that are not bytes: no text becomes it by merges.
      token.bytes = token.spelling;
      outside_[std::string(spelling)] = static_cast<int32_t>(id);
      return;
    }
    if (arena_.size() > UINT32_MAX) throw invalid_argument("the tokens take more than 4 GiB", "vocab");
    token.bytes = {static_cast<uint32_t>(begin), static_cast<uint32_t>(arena_.size() - begin)};
  } else {
    token.bytes = store_bytes(spelling);
  }
  const Text key = style_.byte_level ? token.bytes : token.spelling;
  longest_key_ = std::max<size_t>(longest_key_, key.length);
  insert(key, static_cast<int32_t>(id));
}

void Vocabulary::add_verbatim(int64_t id, std::string_view content, bool special) {
  Entry& token = entry(id, content);
  if (!token.present) {
    token.present = true;
    token.spelling = store(content);
    token.bytes = style_.byte_level ? token.spelling : store_bytes(content);
  }
  token.special = token.special || special;
  outside_[std::string(content)] = static_cast<int32_t>(id);
}

void Vocabulary::respell(int32_t id, std::string_view spelling) {
  if (!has(id) || this->spelling(id) == spelling) return;
  Entry& token = entries_[static_cast<size_t>(id)];
  token.spelling = store(spelling);
  token.bytes = style_.byte_level ? token.spelling : store_bytes(spelling);
}

void Vocabulary::set_bytes(int32_t id, std::string_view bytes) {
  if (has(id) && this->bytes(id) != bytes) entries_[static_cast<size_t>(id)].bytes = store(bytes);
}

void Vocabulary::insert(Text key, int32_t id) {
  if ((used_slots_ + 1) * 2 > slots_.size()) {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id < 0) continue;
      size_t at = slot.hash & (slots_.size() - 1);
      while (slots_[at].id >= 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }
  const std::string_view wanted = view(key);
  const uint32_t hash = hash_of(wanted);
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].id >= 0 && !holds(slots_[at], hash, wanted)) at = (at + 1) & (slots_.size() - 1);
  if (slots_[at].id < 0) ++used_slots_;
  slots_[at] = {hash, id, key};  // of tokens spelled alike the last one counts
}

int32_t Vocabulary::find(std::string_view key, uint32_t hash) const {
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].id >= 0 && !holds(slots_[at], hash, key)) at = (at + 1) & (slots_.size() - 1);
  return slots_[at].id;
}

int32_t Vocabulary::find_spelling(std::string_view spelling) const {
  if (const auto found = outside_.find(spelling); found != outside_.end()) return found->second;
  if (!style_.byte_level) return find(spelling);
  std::string bytes;
  return append_byte_level_decoded(bytes, spelling) ? find(bytes) : -1;
}

}  // namespace quire
