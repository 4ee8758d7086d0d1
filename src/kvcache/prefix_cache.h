#pragma once
// Which block holds which full block of tokens: a table from the hash of a block's tokens, and of all before it, to the
// block.
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace quire {

// 128-bit keyed hash of a block's tokens and everything before it.
struct BlockHash {
  uint64_t low = 0, high = 0;
  bool operator==(const BlockHash&) const = default;
};

// Sized once for `blocks` blocks of block_size tokens; nothing below allocates after that.
class PrefixCache {
 public:
  PrefixCache(int32_t blocks, int32_t block_size, uint64_t key);

  // As in BlockPool.
  BlockHash root(std::string_view cache_salt) const;
  BlockHash extend(const BlockHash& parent, std::span<const int32_t> tokens) const;
  std::optional<int32_t> find(const BlockHash& hash, std::span<const int32_t> tokens) const;

  bool holds(int32_t block) const { return entries_[static_cast<size_t>(block)].held; }
  // Does nothing if the block is held already or another block is under this hash.
  void insert(int32_t block, const BlockHash& hash, std::span<const int32_t> tokens);
  void erase(int32_t block);  // does nothing if it is not held
  void clear();

 private:
  // A held block's hash and its link in the chain of its bucket.
  struct Entry {
    BlockHash hash;
    int32_t next = -1;
    bool held = false;
  };
  size_t bucket_of(const BlockHash& hash) const { return hash.low & (buckets_.size() - 1); }
  int32_t lookup(const BlockHash& hash) const;  // -1 = none

  int32_t block_size_;
  uint64_t key_;
  std::vector<int32_t> buckets_;  // a power of two of them: first block of each chain, -1 = empty
  std::vector<Entry> entries_;
  std::vector<int32_t> tokens_;  // [blocks, block_size]
};

}  // namespace quire
