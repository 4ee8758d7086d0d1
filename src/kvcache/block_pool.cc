#include "kvcache/block_pool.h"

#include <cassert>

namespace quire {
namespace {

constexpr int32_t kNone = -1;

}  // namespace

struct BlockPool::Impl {
  struct Block {
    int32_t references = 0;
    int32_t previous = kNone, next = kNone;  // in the free list, least recently used first
  };

  // Without prefix caching the cache has no entries and only hashes.
  explicit Impl(const Options& o)
      : options(o),
        blocks(static_cast<size_t>(o.blocks)),
        cache(o.prefix_caching ? o.blocks : 0, o.block_size, o.key) {}

  Options options;
  std::vector<Block> blocks;
  PrefixCache cache;
  int32_t head = kNone, tail = kNone, free = 0;

  Block& at(int32_t block) {
    assert(block >= 0 && block < options.blocks);
    return blocks[static_cast<size_t>(block)];
  }
  bool cached(int32_t block) const { return options.prefix_caching && cache.holds(block); }

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
};

BlockPool::BlockPool(const Options& options) : impl_(std::make_unique<Impl>(options)) {
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
  if (impl_->cached(block)) impl_->cache.erase(block);
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
  if (impl_->cached(block)) {
    impl_->append_free(block);
  } else {
    impl_->prepend_free(block);
  }
}

BlockHash BlockPool::root(std::string_view cache_salt) const { return impl_->cache.root(cache_salt); }

BlockHash BlockPool::extend(const BlockHash& parent, std::span<const int32_t> tokens) const {
  return impl_->cache.extend(parent, tokens);
}

std::optional<int32_t> BlockPool::find(const BlockHash& hash, std::span<const int32_t> tokens) const {
  return impl_->cache.find(hash, tokens);
}

void BlockPool::publish(int32_t block, const BlockHash& hash, std::span<const int32_t> tokens) {
  if (impl_->options.prefix_caching) impl_->cache.insert(block, hash, tokens);
}

void BlockPool::reset_prefix_cache() { impl_->cache.clear(); }

int64_t slot_of(std::span<const int32_t> block_table, int64_t position, int32_t block_size) {
  if (position < 0 || position / block_size >= static_cast<int64_t>(block_table.size())) return -1;
  const int32_t block = block_table[static_cast<size_t>(position / block_size)];
  return block < 0 ? -1 : int64_t{block} * block_size + position % block_size;
}

}  // namespace quire
