#pragma once
// Brings the next partition's keys and values near while the current one is worked on: products leave the memory idle,
// and what is spread over them fills no queue.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace quire {

template <class Isa>
class KvAhead {
 public:
  // Keys [begin, end) of one KV head, begin a multiple of 16, in `steps` calls of step(); what does not come out even
  // and what is more than kMostLines a step is left to whoever reads it.
  KvAhead(const PagedKv& kv, const int32_t* block_table, int64_t kv_head, int64_t begin, int64_t end, int64_t steps)
      : kv_(kv), block_table_(block_table), kv_head_(kv_head), key_(begin), end_(end) {
    if (begin >= end) return;
    const int64_t element = block_bytes(kv.dtype),
                  lines = (end - begin) * (kv.head_dim + kv.v_head_dim) * element / kLine;
    lines_ = std::min(kMostLines, (lines + steps - 1) / steps);
  }

  void step() {
    for (int64_t i = 0; i < lines_; ++i) {
      if (at_ == stop_ && !next_run()) return;
      Isa::prefetch(at_);
      at_ += kLine;
    }
  }

 private:
  static constexpr int64_t kLine = 64, kMostLines = 16, kKeys = 16, kPiece = 16;  // bytes, lines, keys, bytes

  // As many bytes as lie together, of 16 keys' K and then of their V.
  bool next_run() {
    if (runs_ == 0) {
      if (key_ >= end_) return false;
      start_keys();
    }
    --runs_;
    at_ = run_;
    stop_ = at_ + (run_bytes_ + kLine - 1) / kLine * kLine;
    run_ += stride_;
    return true;
  }

  void start_keys() {
    const int64_t element = block_bytes(kv_.dtype), block = block_table_[key_ / kv_.block_size],
                  slot = key_ % kv_.block_size;
    const bool plain = kv_.layout == KvLayout::kPlain;
    const auto lay = [&](const void* plane, int64_t offset, int64_t runs, int64_t bytes, int64_t stride) {
      run_ = static_cast<const std::byte*>(plane) + offset * element;
      runs_ = runs, run_bytes_ = bytes, stride_ = stride;
    };
    if (values_) {
      const int64_t row = kv_.v_head_dim * element;
      if (plain) {
        lay(kv_.v, PlainLayout::v(kv_, block, slot, kv_head_, 0), kKeys, row, kv_.kv_heads * row);
      } else {
        lay(kv_.v, ShuffleLayout::v(kv_, block, slot, kv_head_, 0), 1, kKeys * row, 0);
      }
      key_ += kKeys;
    } else if (plain) {
      const int64_t row = kv_.head_dim * element;
      lay(kv_.k, PlainLayout::k(kv_, block, slot, kv_head_, 0), kKeys, row, kv_.kv_heads * row);
    } else {
      lay(kv_.k, ShuffleLayout::k(kv_, block, slot, kv_head_, 0), stored_head_dim(kv_) * element / kPiece,
          kKeys * kPiece, kPiece * kv_.block_size);
    }
    values_ = !values_;
  }

  const PagedKv& kv_;
  const int32_t* block_table_;
  int64_t kv_head_, key_, end_, lines_ = 0;
  bool values_ = false;
  const std::byte *run_ = nullptr, *at_ = nullptr, *stop_ = nullptr;
  int64_t runs_ = 0, run_bytes_ = 0, stride_ = 0;
};

}  // namespace quire
