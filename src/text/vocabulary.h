#pragma once
// The tokens of a model: id to bytes and back. Filled once by a loader, constant after that.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, which stands for a space in SentencePiece

// The value of "<0xNN>", -1 for any other text.
int byte_token_value(std::string_view spelling);

class Vocabulary {
 public:
  static constexpr int64_t kMaxId = (1 << 22) - 1;

  // How the file spells tokens; neither: as they are.
  struct Style {
    bool byte_level = false;     // each character is a byte (text/byte_level.h)
    bool mark_is_space = false;  // U+2581 stands for a space
    bool byte_tokens = false;    // <0xNN> stands for a byte
  };

  Vocabulary(Style style, size_t expected_tokens);

  // A token of the model. Its key, which merges work on, is its bytes in a byte-level vocabulary and else its spelling.
  // Throws Error(kInvalidArgument) if the id is negative or above kMaxId.
  void add(int64_t id, std::string_view spelling);
  // An added token: no merge makes it unless add() gave it too. In a byte-level vocabulary it stands for its content as
  // it is.
  void add_verbatim(int64_t id, std::string_view content, bool special);
  // Another spelling for an id, which find_spelling() goes on to find by the old one.
  void respell(int32_t id, std::string_view spelling);
  // What an id stands for, in place of what its spelling and the style say.
  void set_bytes(int32_t id, std::string_view bytes);

  const Style& style() const { return style_; }
  int32_t size() const { return static_cast<int32_t>(entries_.size()); }  // largest id + 1
  bool has(int32_t id) const { return id >= 0 && id < size() && entries_[id].present; }
  std::string_view spelling(int32_t id) const { return has(id) ? view(entries_[id].spelling) : std::string_view(); }
  std::string_view bytes(int32_t id) const { return has(id) ? view(entries_[id].bytes) : std::string_view(); }
  bool is_special(int32_t id) const { return has(id) && entries_[id].special; }

  int32_t find(std::string_view key) const { return find(key, hash_of(key)); }  // -1 if absent
  // The same in steps for many keys at once, so that their cache misses overlap: prefetch the slots, then the keys,
  // then find.
  static uint32_t hash_of(std::string_view key);
  int32_t find(std::string_view key, uint32_t hash) const;
  void prefetch_slot(uint32_t hash) const { __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]); }
  void prefetch_key(uint32_t hash) const {
    __builtin_prefetch(arena_.data() + slots_[hash & (slots_.size() - 1)].key.begin);
  }
  size_t longest_key() const { return longest_key_; }  // in bytes

  int32_t find_spelling(std::string_view spelling) const;  // -1 if absent; finds added tokens too

 private:
  struct Text {
    uint32_t begin = 0, length = 0;
  };
  struct Entry {
    Text spelling, bytes;
    bool present = false, special = false;
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
    Text key;  // a copy, so that a lookup need not touch the entry
  };

  std::string_view view(Text text) const { return {arena_.data() + text.begin, text.length}; }
  Entry& entry(int64_t id, std::string_view spelling);
  Text store(std::string_view text);
  Text store_bytes(std::string_view spelling);
  bool holds(const Slot& slot, uint32_t hash, std::string_view key) const {
    return slot.hash == hash && view(slot.key) == key;
  }
  void insert(Text key, int32_t id);

  Style style_;
  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  // open addressing by hash of the key, at most half full
  size_t used_slots_ = 0, longest_key_ = 0;
  std::map<std::string, int32_t, std::less<>> outside_;  // tokens without a key, and added ones, by spelling
};

}  // namespace quire
