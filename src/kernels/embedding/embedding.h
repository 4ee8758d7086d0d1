#pragma once
// Token embedding of models whose head is not tied: rows kept as the checkpoint stores them, dequantized when looked
// up.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/dtype.h"

namespace quire {

class EmbeddingTable {
 public:
  EmbeddingTable() = default;
  // table: [vocab, n] of `dtype`, n a whole number of its blocks.
  EmbeddingTable(std::vector<std::byte> table, DType dtype, int64_t n);

  // dst [ids.size(), n]; every id in [0, vocab).
  void lookup(std::span<const int32_t> ids, float* dst, ThreadPool& pool) const;
  size_t bytes() const { return table_.size(); }

 private:
  std::vector<std::byte> table_;
  DType dtype_ = DType::kF32;
  int64_t n_ = 0, row_bytes_ = 0;
};

}  // namespace quire
