#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/fill/gpu/fill.h"
#include "model/weight_upload.h"

namespace quire {
namespace {

constexpr int64_t kSlotBytes = int64_t{32} << 20;

void narrow(const float* from, int64_t n, DType dtype, std::byte* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(from[i]) : f32_to_bf16(from[i]);
    std::memcpy(to + i * 2, &bits, sizeof bits);
  }
}

}  // namespace

void WeightUpload::make_on_device(const TensorInfo& tensor, uint64_t key, DType dtype, std::byte* destination) {
  if (tensor.dtype == dtype) return gpu::fill_dummy(destination, dtype, tensor.elements(), key, 0, stream_);
  if (scratch_.bytes() == 0) scratch_ = gpu::DeviceMemory(static_cast<size_t>(kSlotBytes));
  const int64_t most = kSlotBytes / block_bytes(tensor.dtype);
  for (int64_t first = 0; first < tensor.elements(); first += most) {
    const int64_t n = std::min(most, tensor.elements() - first);
    gpu::fill_dummy(scratch_.data(), tensor.dtype, n, key, first, stream_);
    gpu::convert(scratch_.data(), tensor.dtype, destination + first * block_bytes(dtype), dtype, n, stream_);
  }
}

void WeightUpload::convert_rows(const TensorInfo& tensor, int64_t first, int64_t rows, DType dtype,
                                std::byte* to) const {
  const int64_t n = tensor.elements() / tensor.shape[0];
  pool_.parallel_for(rows, [&](int64_t begin, int64_t end, int) {
    std::vector<std::byte> scratch;
    const std::byte* source = checkpoint_.rows(tensor, first + begin, end - begin, scratch);
    std::byte* out = to + begin * n * block_bytes(dtype);
    const int64_t count = (end - begin) * n;
    if (tensor.dtype == dtype) {
      std::memcpy(out, source, static_cast<size_t>(storage_bytes(dtype, count)));
      return;
    }
    // By pieces that stay in a core's cache; every block type divides them.
    constexpr int64_t kPiece = 16384;
    std::vector<float> values(static_cast<size_t>(std::min(kPiece, count)));
    for (int64_t done = 0; done < count; done += kPiece) {
      const int64_t piece = std::min(kPiece, count - done);
      dequantize(tensor.dtype, source + storage_bytes(tensor.dtype, done), values.data(), piece);
      narrow(values.data(), piece, dtype, out + done * block_bytes(dtype));
    }
  });
}

void WeightUpload::upload_vector(const TensorInfo& tensor, DType dtype, std::byte* destination) {
  std::vector<std::byte> scratch, converted(static_cast<size_t>(tensor.elements() * block_bytes(dtype)));
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  dequantize(tensor.dtype, checkpoint_.rows(tensor, 0, tensor.elements(), scratch), values.data(), tensor.elements());
  narrow(values.data(), tensor.elements(), dtype, converted.data());
  stream_.copy_to_device(destination, converted.data(), converted.size(), "weights");
  stream_.wait("weights");
}

void WeightUpload::upload(const TensorInfo& tensor, DType dtype, std::byte* destination) {
  if (const auto key = checkpoint_.dummy_key_of(tensor)) return make_on_device(tensor, *key, dtype, destination);
  // One-dimensional: the outermost dimension is the elements themselves, which may be quantized in blocks.
  if (tensor.shape.size() == 1) return upload_vector(tensor, dtype, destination);
  const int64_t row_bytes = tensor.elements() / tensor.shape[0] * block_bytes(dtype);
  const int64_t most = std::max<int64_t>(1, kSlotBytes / row_bytes);
  for (int64_t row = 0; row < tensor.shape[0]; row += most) {
    const int64_t rows = std::min(most, tensor.shape[0] - row);
    Slot& slot = slots_[next_slot_];
    next_slot_ = 1 - next_slot_;
    if (slot.used) stream_.wait(slot.copied, "weights");
    const auto bytes = static_cast<size_t>(rows * row_bytes);
    if (slot.memory.bytes() < bytes) slot.memory = gpu::PinnedMemory(std::max(bytes, static_cast<size_t>(kSlotBytes)));
    auto* staged = static_cast<std::byte*>(slot.memory.data());
    convert_rows(tensor, row, rows, dtype, staged);
    stream_.copy_to_device(destination + row * row_bytes, staged, bytes, "weights");
    stream_.record(slot.copied);
    slot.used = true;
  }
}

void WeightUpload::finish() {
  stream_.wait("weights");
  for (Slot& slot : slots_) slot.memory = {};
  scratch_ = {};
}

}  // namespace quire
