#include "text/byte_trie.h"

namespace quire {

void ByteTrie::insert(uint64_t key, int32_t node) {
  size_t at = slot_of(key);
  while (slots_[at].key != kFree) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = {key, node};
}

void ByteTrie::add(std::string_view text, int32_t value) {
  int32_t node = kRoot;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = child(node, byte);
    if (next == kNone) {
      if (values_.size() * 2 > slots_.size()) {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
          if (slot.key != kFree) insert(slot.key, slot.node);
        }
      }
      next = static_cast<int32_t>(values_.size());
      values_.push_back(kNone);
      insert(key_of(node, byte), next);
    }
    node = next;
  }
  values_[static_cast<size_t>(node)] = value;
}

}  // namespace quire
