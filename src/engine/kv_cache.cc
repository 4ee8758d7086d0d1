#include "engine/kv_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace quire {

int64_t kv_block_bytes(const AttentionGroup& group, int64_t layers) {
  return 2 * layers * group.block_size * group.kv_heads * group.head_dim * block_bytes(group.kv_dtype);
}

int64_t plan_kv_blocks(const EngineConfig& config, const AttentionGroup& group, int64_t layers,
                       long long available_bytes) {
  const int64_t block_bytes = kv_block_bytes(group, layers);
  const int64_t one_sequence = (config.max_model_len + group.block_size - 1) / group.block_size;
  int64_t blocks;
  const char* flag = "--kv-cache-memory-bytes";
  if (config.num_gpu_blocks_override > 0) {
    blocks = config.num_gpu_blocks_override;
    flag = "--num-gpu-blocks-override";
  } else if (config.kv_cache_memory_bytes > 0) {
    blocks = config.kv_cache_memory_bytes / block_bytes;
  } else {
    blocks = std::min(config.max_num_seqs * one_sequence, static_cast<int64_t>(available_bytes / 4) / block_bytes);
  }
  if (blocks < one_sequence) {
    throw Error(ErrorKind::kResourceExhausted,
                fmt::format("the KV cache holds {} tokens ({:.2f} GiB), one sequence of --max-model-len {} needs "
                            "{:.2f} GiB; raise {} or lower "
                            "--max-model-len",
                            blocks * group.block_size, static_cast<double>(blocks * block_bytes) / (1 << 30),
                            config.max_model_len, static_cast<double>(one_sequence * block_bytes) / (1 << 30), flag),
                "max-model-len");
  }
  constexpr int64_t kMostBlocks = INT32_MAX;
  return std::min(blocks, kMostBlocks);
}

DType parse_kv_dtype(const std::string& name, ComputeDType compute) {
  if (name == "auto") {
    return compute == ComputeDType::kF32 ? DType::kF32 : compute == ComputeDType::kBF16 ? DType::kBF16 : DType::kF16;
  }
  if (name == "float32") return DType::kF32;
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  throw invalid_argument(fmt::format("--kv-cache-dtype {}: there are auto, float32, float16 and bfloat16", name),
                         "kv-cache-dtype");
}

KvCache::KvCache(const AttentionGroup& group, int64_t layers, int64_t blocks)
    : blocks_(blocks), bytes_(static_cast<size_t>(blocks * kv_block_bytes(group, layers))) {
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) {
    throw Error(ErrorKind::kResourceExhausted,
                fmt::format("can't reserve {} bytes for the KV cache ({}); lower --kv-cache-memory-bytes, "
                            "--max-num-seqs or --max-model-len",
                            bytes_, std::strerror(errno)),
                "kv-cache-memory-bytes");
  }
  auto* next = static_cast<std::byte*>(memory_);
  for (int64_t layer = 0; layer < layers; ++layer) {
    PagedKv kv{nullptr,          nullptr,        group.kv_dtype, group.layout,
               group.block_size, group.kv_heads, group.head_dim, blocks};
    kv.k = next;
    kv.v = next + plane_bytes(kv);
    next += 2 * plane_bytes(kv);
    layers_.push_back(kv);
  }
}

KvCache::~KvCache() { munmap(memory_, bytes_); }

}  // namespace quire
