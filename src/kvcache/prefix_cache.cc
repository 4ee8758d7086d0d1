#include "kvcache/prefix_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cassert>

namespace quire {

PrefixCache::PrefixCache(int32_t blocks, int32_t block_size, uint64_t key)
    : block_size_(block_size),
      key_(key),
      buckets_(std::bit_ceil(static_cast<size_t>(blocks) + 1), -1),
      entries_(static_cast<size_t>(blocks)),
      tokens_(static_cast<size_t>(blocks) * static_cast<size_t>(block_size)) {}

BlockHash PrefixCache::root(std::string_view cache_salt) const {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(cache_salt.data(), cache_salt.size(), key_);
  return {hash.low64, hash.high64};
}

BlockHash PrefixCache::extend(const BlockHash& parent, std::span<const int32_t> tokens) const {
  // One buffer of parent and tokens would need an allocation: the tokens' hash and the parent are hashed as a pair.
  const XXH128_hash_t content = XXH3_128bits_withSeed(tokens.data(), tokens.size_bytes(), key_);
  const uint64_t pair[4] = {parent.low, parent.high, content.low64, content.high64};
  const XXH128_hash_t chained = XXH3_128bits_withSeed(pair, sizeof pair, key_);
  return {chained.low64, chained.high64};
}

int32_t PrefixCache::lookup(const BlockHash& hash) const {
  int32_t block = buckets_[bucket_of(hash)];
  while (block >= 0 && entries_[static_cast<size_t>(block)].hash != hash)
    block = entries_[static_cast<size_t>(block)].next;
  return block;
}

std::optional<int32_t> PrefixCache::find(const BlockHash& hash, std::span<const int32_t> tokens) const {
  const int32_t block = lookup(hash);
  if (block < 0) return std::nullopt;
  const int32_t* held = tokens_.data() + int64_t{block} * block_size_;
  if (!std::equal(tokens.begin(), tokens.end(), held, held + block_size_)) return std::nullopt;
  return block;
}

void PrefixCache::insert(int32_t block, const BlockHash& hash, std::span<const int32_t> tokens) {
  assert(tokens.size() == static_cast<size_t>(block_size_));
  Entry& entry = entries_[static_cast<size_t>(block)];
  if (entry.held || lookup(hash) >= 0) return;
  int32_t& first = buckets_[bucket_of(hash)];
  entry = {hash, first, true};
  first = block;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + int64_t{block} * block_size_);
}

void PrefixCache::erase(int32_t block) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  if (!entry.held) return;
  int32_t* link = &buckets_[bucket_of(entry.hash)];
  while (*link != block) link = &entries_[static_cast<size_t>(*link)].next;
  *link = entry.next;
  entry.held = false;
}

void PrefixCache::clear() {
  std::fill(buckets_.begin(), buckets_.end(), -1);
  for (Entry& entry : entries_) entry.held = false;
}

}  // namespace quire
