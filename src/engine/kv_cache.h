#pragma once
// The memory of the KV cache: how large it is, reserved once, touched on use.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "engine/config.h"
#include "model/model.h"
#include "tensor/paged_kv.h"

namespace quire {

// Blocks of the pool: --num-gpu-blocks-override, else --kv-cache-memory-bytes, else the smaller of max_num_seqs x
// max_model_len tokens and a quarter of the memory that is available. Throws Error naming the flag, the bytes needed
// and those available if a size that was asked for is not there.
int64_t choose_kv_blocks(const EngineConfig& config, const AttentionGroup& group, int64_t layers,
                         long long available_bytes);

// The same; throws Error naming the flags if not one sequence of max_model_len fits.
int64_t plan_kv_blocks(const EngineConfig& config, const AttentionGroup& group, int64_t layers,
                       long long available_bytes);

// Bytes of K and V of one block in all layers.
int64_t kv_block_bytes(const AttentionGroup& group, int64_t layers);

// DType for --kv-cache-dtype; auto: f32 with --dtype float32, bf16 with bfloat16, else f16. Throws Error naming what
// there is.
DType parse_kv_dtype(const std::string& name, ComputeDType compute);
// fp8 has one scale, 1, for a layer; int8 one for each token and head.
KvScaling kv_scaling_of(DType kv_dtype);

class KvCache {
 public:
  // Throws Error(kResourceExhausted) with the bytes needed and available if they can't be reserved.
  KvCache(const AttentionGroup& group, int64_t layers, int64_t blocks);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  std::span<const PagedKv> layers() const { return layers_; }
  int64_t blocks() const { return blocks_; }

 private:
  std::vector<PagedKv> layers_;
  float unit_scale_ = 1.0f;
  int64_t blocks_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace quire
