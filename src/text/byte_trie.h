#pragma once
// Byte strings with a number each, for finding all of them that begin at a place of a text.
#include <cstdint>
#include <string_view>
#include <vector>

namespace quire {

class ByteTrie {
 public:
  static constexpr int32_t kRoot = 0, kNone = -1;

  ByteTrie() : values_(1, kNone), slots_(64) {}
  // Of equal strings the last one counts. value is not negative.
  void add(std::string_view text, int32_t value);

  // The node below `node` along a byte; kNone if no string goes on that way.
  int32_t child(int32_t node, uint8_t byte) const {
    const uint64_t key = key_of(node, byte);
    for (size_t at = slot_of(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return slots_[at].node;
      if (slots_[at].key == kFree) return kNone;
    }
  }
  int32_t value(int32_t node) const { return values_[static_cast<size_t>(node)]; }  // kNone if no string ends there

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  struct Slot {
    uint64_t key = kFree;
    int32_t node = kNone;
  };
  static uint64_t key_of(int32_t node, uint8_t byte) { return static_cast<uint64_t>(node) << 8 | byte; }
  size_t slot_of(uint64_t key) const { return (key * 0x9E3779B97F4A7C15 >> 32) & (slots_.size() - 1); }
  void insert(uint64_t key, int32_t node);

  std::vector<int32_t> values_;
  std::vector<Slot> slots_;  // edges, by open addressing, at most half full
};

}  // namespace quire
