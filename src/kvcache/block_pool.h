#pragma once
// Blocks of the KV cache: reference counts, a free list in least-recently-used order, and the prefix cache over full
// blocks.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvcache/prefix_cache.h"

namespace quire {

class BlockPool {
 public:
  // key: secret of the hash, random for each process unless a test fixes it.
  struct Options {
    int32_t blocks = 0;
    int32_t block_size = 16;
    bool prefix_caching = true;
    uint64_t key = 0;
  };
  explicit BlockPool(const Options& options);
  ~BlockPool();

  int32_t blocks() const;
  int32_t free_blocks() const;  // reference count 0, cached or not
  int32_t block_size() const;

  // A free block with reference count 1, the least recently used first; its cached content is forgotten. nullopt = none
  // free.
  std::optional<int32_t> allocate();
  void retain(int32_t block);  // +1; takes it off the free list if it was there
  // -1; at 0 it joins the free list: at the tail with its cached content, at the head if it has none.
  void release(int32_t block);

  // Chain start for a request: cache_salt separates tenants.
  BlockHash root(std::string_view cache_salt) const;
  BlockHash extend(const BlockHash& parent, std::span<const int32_t> tokens) const;  // tokens.size() == block_size

  // A block whose content has this hash, parent chain and these very tokens (compared), or nullopt. Does not retain.
  std::optional<int32_t> find(const BlockHash& hash, std::span<const int32_t> tokens) const;
  // The block is full and computed: from now on find() may return it. A second block with equal content stays uncached.
  // tokens.size() == block_size.
  void publish(int32_t block, const BlockHash& hash, std::span<const int32_t> tokens);
  void reset_prefix_cache();  // forgets all cached content; reference counts stay

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Slot of a position in a request's block table: block * block_size + offset, or -1 where the table has no block for
// it.
int64_t slot_of(std::span<const int32_t> block_table, int64_t position, int32_t block_size);

}  // namespace quire
