#pragma once
// The memory of the KV cache: how large it is, reserved once, touched on use.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "engine/config.h"
#include "tensor/paged_kv.h"

namespace quire {

// Bytes that a device has for a cache: what it takes if nobody says how much, and the most there is.
struct KvBudget {
  long long by_default, available;
  const char* flag = "--kv-cache-memory-bytes";  // what to raise where the default is too small
};

// Blocks of the pool: --num-gpu-blocks-override, else --kv-cache-memory-bytes, else the smaller of max_num_seqs x
// max_model_len tokens and what the device takes by default. Throws Error naming the flag, the bytes needed
// and those available if a size that was asked for is not there.
int64_t choose_kv_blocks(const EngineConfig& config, const AttentionGroup& group, int64_t layers,
                         const KvBudget& budget);

// The same; throws Error naming the flags if not one sequence of max_model_len fits.
int64_t plan_kv_blocks(const EngineConfig& config, const AttentionGroup& group, int64_t layers, const KvBudget& budget);

// Bytes of K and V of one block in all layers.
int64_t kv_block_bytes(const AttentionGroup& group, int64_t layers);

// DType for --kv-cache-dtype. Throws Error naming what there is.
DType parse_kv_dtype(const std::string& name, DType automatic);
// fp8 has one scale, 1, for a layer; int8 one for each token and head.
KvScaling kv_scaling_of(DType kv_dtype);

// Memory for a cache, and one float in it that is 1: the scale of fp8.
struct KvMemory {
  std::shared_ptr<void> memory;
  float* one;
};
// Of the host: reserved, and taken as it is used. Throws Error(kResourceExhausted) with the bytes needed and available.
KvMemory allocate_host_kv(size_t bytes);

class KvCache {
 public:
  static size_t bytes(const AttentionGroup& group, int64_t layers, int64_t blocks) {
    return static_cast<size_t>(blocks * kv_block_bytes(group, layers));
  }
  // memory: bytes() of the device's.
  KvCache(const AttentionGroup& group, int64_t layers, int64_t blocks, KvMemory memory);

  std::span<const PagedKv> layers() const { return layers_; }
  int64_t blocks() const { return blocks_; }

 private:
  KvMemory memory_;
  std::vector<PagedKv> layers_;
  int64_t blocks_;
};

}  // namespace quire
