#pragma once
// Weights on their way from a checkpoint to a GPU: made there if they are made up, else converted by the host's threads
// into pinned memory while the piece before is being copied.
#include <array>
#include <cstdint>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "gpu/memory.h"
#include "gpu/stream.h"

namespace quire {

class WeightUpload {
 public:
  WeightUpload(const Checkpoint& checkpoint, gpu::Stream& stream, ThreadPool& pool)
      : checkpoint_(checkpoint), stream_(stream), pool_(pool) {}

  // All of the tensor as `dtype` (kF32, kF16, kBF16) to destination. The copy may still be under way.
  void upload(const TensorInfo& tensor, DType dtype, std::byte* destination);
  // Waits for all copies and gives the pinned memory back.
  void finish();

 private:
  struct Slot {
    gpu::PinnedMemory memory;
    gpu::Event copied;
    bool used = false;
  };
  void upload_vector(const TensorInfo& tensor, DType dtype, std::byte* destination);
  void make_on_device(const TensorInfo& tensor, uint64_t key, DType dtype, std::byte* destination);
  void convert_rows(const TensorInfo& tensor, int64_t first, int64_t rows, DType dtype, std::byte* to) const;

  const Checkpoint& checkpoint_;
  gpu::Stream& stream_;
  ThreadPool& pool_;
  std::array<Slot, 2> slots_;
  size_t next_slot_ = 0;
  gpu::DeviceMemory scratch_;  // of made-up weights whose type is not the one wanted
};

}  // namespace quire
