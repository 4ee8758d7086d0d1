#include "kernels/embedding/embedding.h"

#include <utility>

namespace quire {

EmbeddingTable::EmbeddingTable(std::vector<std::byte> table, DType dtype, int64_t n)
    : table_(std::move(table)), dtype_(dtype), n_(n), row_bytes_(storage_bytes(dtype, n)) {}

void EmbeddingTable::lookup(std::span<const int32_t> ids, float* dst, ThreadPool& pool) const {
  pool.parallel_for(static_cast<int64_t>(ids.size()), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) dequantize(dtype_, table_.data() + ids[i] * row_bytes_, dst + i * n_, n_);
  });
}

}  // namespace quire
