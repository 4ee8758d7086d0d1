#include "kvcache/block_pool.h"

#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <unordered_map>

namespace quire {
namespace {

constexpr int32_t kNone = -1;

struct HashOfBlockHash {
  size_t operator()(const BlockHash& hash) const { return hash.low; }
};

}  // namespace

struct BlockPool::Impl {
  struct Block {
    int32_t references = 0;
    int32_t previous = kNone, next = kNone;  // in the free list, least recently used first
    bool cached = false;
    BlockHash hash;
  };

  Options options;
  std::vector<Block> blocks;
  std::vector<int32_t> tokens;  // [blocks, block_size], what a cached block holds
  std::unordered_map<BlockHash, int32_t, HashOfBlockHash> by_hash;
  int32_t head = kNone, tail = kNone, free = 0;

  Block& at(int32_t block) {
    assert(block >= 0 && block < options.blocks);
    return blocks[static_cast<size_t>(block)];
  }

  void append_free(int32_t block) {
    Block& b = at(block);
    b.previous = tail;
    b.next = kNone;
    (tail == kNone ? head : at(tail).next) = block;
    tail = block;
    ++free;
  }
  void prepend_free(int32_t block) {
    Block& b = at(block);
    b.previous = kNone;
    b.next = head;
    (head == kNone ? tail : at(head).previous) = block;
    head = block;
    ++free;
  }
  void unlink_free(int32_t block) {
    const Block& b = at(block);
    (b.previous == kNone ? head : at(b.previous).next) = b.next;
    (b.next == kNone ? tail : at(b.next).previous) = b.previous;
    --free;
  }
  void forget(int32_t block) {
    Block& b = at(block);
    if (!b.cached) return;
    by_hash.erase(b.hash);
    b.cached = false;
  }
};

BlockPool::BlockPool(const Options& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->blocks.resize(static_cast<size_t>(options.blocks));
  if (options.prefix_caching) {
    impl_->tokens.resize(static_cast<size_t>(options.blocks) * static_cast<size_t>(options.block_size));
    impl_->by_hash.reserve(static_cast<size_t>(options.blocks));
  }
  for (int32_t block = 0; block < options.blocks; ++block) impl_->append_free(block);
}

BlockPool::~BlockPool() = default;

int32_t BlockPool::blocks() const { return impl_->options.blocks; }
int32_t BlockPool::free_blocks() const { return impl_->free; }
int32_t BlockPool::block_size() const { return impl_->options.block_size; }

std::optional<int32_t> BlockPool::allocate() {
  const int32_t block = impl_->head;
  if (block == kNone) return std::nullopt;
  impl_->unlink_free(block);
  impl_->forget(block);
  impl_->at(block).references = 1;
  return block;
}

void BlockPool::retain(int32_t block) {
  Impl::Block& b = impl_->at(block);
  if (b.references++ == 0) impl_->unlink_free(block);
}

void BlockPool::release(int32_t block) {
  Impl::Block& b = impl_->at(block);
  assert(b.references > 0);
  if (--b.references > 0) return;
  // What holds no cached content is taken first: nothing is lost with it.
  if (b.cached) {
    impl_->append_free(block);
  } else {
    impl_->prepend_free(block);
  }
}

BlockHash BlockPool::root(std::string_view cache_salt) const {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(cache_salt.data(), cache_salt.size(), impl_->options.key);
  return {hash.low64, hash.high64};
}

BlockHash BlockPool::extend(const BlockHash& parent, std::span<const int32_t> tokens) const {
  // One buffer of parent and tokens would need an allocation; chaining through the seed and mixing in the other half
  // does not.
  const XXH128_hash_t hash = XXH3_128bits_withSeed(
      tokens.data(), tokens.size_bytes(), parent.low ^ (parent.high * 0x9e3779b97f4a7c15u) ^ impl_->options.key);
  const uint64_t pair[4] = {hash.low64, hash.high64, parent.low, parent.high};
  const XXH128_hash_t chained = XXH3_128bits_withSeed(pair, sizeof pair, impl_->options.key);
  return {chained.low64, chained.high64};
}

std::optional<int32_t> BlockPool::find(const BlockHash& hash, std::span<const int32_t> tokens) const {
  const auto it = impl_->by_hash.find(hash);
  if (it == impl_->by_hash.end()) return std::nullopt;
  const int32_t* held = impl_->tokens.data() + static_cast<int64_t>(it->second) * impl_->options.block_size;
  if (!std::equal(tokens.begin(), tokens.end(), held, held + impl_->options.block_size)) return std::nullopt;
  return it->second;
}

void BlockPool::publish(int32_t block, const BlockHash& hash, std::span<const int32_t> tokens) {
  assert(tokens.size() == static_cast<size_t>(impl_->options.block_size));
  Impl::Block& b = impl_->at(block);
  if (!impl_->options.prefix_caching || b.cached) return;
  if (!impl_->by_hash.emplace(hash, block).second) return;
  b.cached = true;
  b.hash = hash;
  std::copy(tokens.begin(), tokens.end(),
            impl_->tokens.begin() + static_cast<int64_t>(block) * impl_->options.block_size);
}

void BlockPool::reset_prefix_cache() {
  for (int32_t block = 0; block < impl_->options.blocks; ++block) impl_->forget(block);
}

int64_t slot_of(std::span<const int32_t> block_table, int64_t position, int32_t block_size) {
  if (position < 0 || position / block_size >= static_cast<int64_t>(block_table.size())) return -1;
  const int32_t block = block_table[static_cast<size_t>(position / block_size)];
  return block < 0 ? -1 : int64_t{block} * block_size + position % block_size;
}

}  // namespace quire
