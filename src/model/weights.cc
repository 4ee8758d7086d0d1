#include "model/weights.h"

#include <algorithm>
#include <cstring>

namespace quire {

WeightLoader::WeightLoader(const Checkpoint& checkpoint, const ModelOptions& options, ThreadPool& pool)
    : tensors_(checkpoint, options.progress), dtype_(options.dtype), pool_(pool) {}

std::vector<float> WeightLoader::vector(const std::string& name, int64_t n) {
  const TensorInfo& tensor = tensors_.find(name, {n});
  std::vector<std::byte> scratch;
  std::vector<float> values(static_cast<size_t>(n));
  // One-dimensional: the outermost dimension is the elements themselves.
  dequantize(tensor.dtype, tensors_.checkpoint().rows(tensor, 0, n, scratch), values.data(), n);
  tensors_.done(tensor);
  return values;
}

// auto keeps block-quantized weights as they are and everything narrower than f32 in bf16; f16 has more mantissa than
// bf16, so it is widened. A stack of unlike parts falls back to f32, which holds them all.
LinearCompute WeightLoader::compute_for(const std::vector<const TensorInfo*>& tensors) const {
  if (dtype_ == ComputeDType::kF32) return LinearCompute::kF32;
  if (dtype_ == ComputeDType::kBF16) return LinearCompute::kBF16;
  const auto all = [&](auto predicate) { return std::all_of(tensors.begin(), tensors.end(), predicate); };
  if (all([](const TensorInfo* t) { return is_block_quantized(t->dtype); })) return LinearCompute::kInt8;
  if (all([](const TensorInfo* t) { return t->dtype == DType::kBF16 || t->dtype == DType::kF32; }))
    return LinearCompute::kBF16;
  return LinearCompute::kF32;
}

PackedLinear WeightLoader::linear(const std::vector<Part>& parts, int64_t in) {
  std::vector<const TensorInfo*> tensors;
  std::vector<PackedLinear::Part> sources;
  for (const Part& part : parts) {
    const TensorInfo& tensor = tensors_.find(part.name, {part.out, in});
    tensors.push_back(&tensor);
    sources.push_back(
        {part.out, tensor.dtype, [this, &tensor](int64_t row, int64_t count, std::vector<std::byte>& scratch) {
           return tensors_.checkpoint().rows(tensor, row, count, scratch);
         }});
  }
  PackedLinear packed = PackedLinear::pack_stacked(sources, in, compute_for(tensors), pool_);
  for (const TensorInfo* tensor : tensors) tensors_.done(*tensor);
  return packed;
}

EmbeddingTable WeightLoader::embedding(const std::string& name, int64_t vocab, int64_t n) {
  const TensorInfo& tensor = tensors_.find(name, {vocab, n});
  const int64_t row_bytes = storage_bytes(tensor.dtype, n);
  std::vector<std::byte> table(static_cast<size_t>(vocab * row_bytes));
  pool_.parallel_for(vocab, [&](int64_t begin, int64_t end, int) {
    std::vector<std::byte> scratch;
    constexpr int64_t kChunk = 256;
    for (int64_t row = begin; row < end; row += kChunk) {
      const int64_t count = std::min(kChunk, end - row);
      std::memcpy(table.data() + row * row_bytes, tensors_.checkpoint().rows(tensor, row, count, scratch),
                  static_cast<size_t>(count * row_bytes));
    }
  });
  tensors_.done(tensor);
  return EmbeddingTable(std::move(table), tensor.dtype, n);
}

}  // namespace quire
