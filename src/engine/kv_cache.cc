#include "engine/kv_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/numa.h"

namespace quire {
namespace {

int64_t blocks_for(int64_t tokens, int64_t block_size) { return (tokens + block_size - 1) / block_size; }

}  // namespace

int64_t kv_block_bytes(const AttentionGroup& group, int64_t layers) {
  const PagedKv kv = kv_of(group, 1);
  const int64_t scales = 2 * block_scales(kv) * static_cast<int64_t>(sizeof(float));
  return layers * (k_block_bytes(kv) + v_block_bytes(kv) + scales);
}

int64_t choose_kv_blocks(const EngineConfig& config, const AttentionGroup& group, int64_t layers,
                         const KvBudget& budget) {
  constexpr int64_t kMostBlocks = INT32_MAX;
  const int64_t block_bytes = kv_block_bytes(group, layers);
  if (config.num_gpu_blocks_override <= 0 && config.kv_cache_memory_bytes <= 0) {
    const int64_t useful = config.max_num_seqs * blocks_for(config.max_model_len, group.block_size);
    return std::min({useful, static_cast<int64_t>(budget.by_default) / block_bytes, kMostBlocks});
  }
  const bool by_blocks = config.num_gpu_blocks_override > 0;
  const char* flag = by_blocks ? "--num-gpu-blocks-override" : "--kv-cache-memory-bytes";
  const int64_t blocks = by_blocks ? config.num_gpu_blocks_override : config.kv_cache_memory_bytes / block_bytes;
  if (blocks > std::min(kMostBlocks, static_cast<int64_t>(budget.available) / block_bytes)) {
    throw Error(
        ErrorKind::kResourceExhausted,
        fmt::format("{} {}: the KV cache needs {} blocks of {} bytes, {} bytes of memory are available; lower it", flag,
                    by_blocks ? blocks : config.kv_cache_memory_bytes, blocks, block_bytes, budget.available),
        flag + 2);
  }
  return blocks;
}

int64_t plan_kv_blocks(const EngineConfig& config, const AttentionGroup& group, int64_t layers,
                       const KvBudget& budget) {
  const int64_t blocks = choose_kv_blocks(config, group, layers, budget);
  const int64_t one_sequence = blocks_for(config.max_model_len, group.block_size);
  if (blocks >= one_sequence) return blocks;
  const int64_t block_bytes = kv_block_bytes(group, layers);
  const char* flag = config.num_gpu_blocks_override > 0 ? "--num-gpu-blocks-override"
                     : config.kv_cache_memory_bytes > 0 ? "--kv-cache-memory-bytes"
                                                        : budget.flag;
  throw Error(ErrorKind::kResourceExhausted,
              fmt::format("the KV cache holds {} tokens ({} bytes), one sequence of --max-model-len {} needs {} bytes; "
                          "raise {} or lower --max-model-len ({} bytes of memory are available)",
                          blocks * group.block_size, blocks * block_bytes, config.max_model_len,
                          one_sequence * block_bytes, flag, budget.available),
              "max-model-len");
}

DType parse_kv_dtype(const std::string& name, DType automatic) {
  if (name == "auto") return automatic;
  if (name == "float32") return DType::kF32;
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "fp8" || name == "fp8_e4m3") return DType::kF8E4M3;
  if (name == "fp8_e5m2") return DType::kF8E5M2;
  if (name == "int8_per_token_head") return DType::kI8;
  throw invalid_argument(
      fmt::format("--kv-cache-dtype {}: there are auto, float32, float16, bfloat16, fp8 (= fp8_e4m3), "
                  "fp8_e4m3, fp8_e5m2 and int8_per_token_head",
                  name),
      "kv-cache-dtype");
}

KvScaling kv_scaling_of(DType kv_dtype) {
  switch (kv_dtype) {
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return KvScaling::kTensor;
    case DType::kI8:
      return KvScaling::kTokenHead;
    default:
      return KvScaling::kNone;
  }
}

KvMemory allocate_host_kv(size_t bytes) {
  const size_t size = bytes + sizeof(float);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;  // asking for the memory that is there changes it
    throw Error(ErrorKind::kResourceExhausted,
                fmt::format("can't reserve {} bytes for the KV cache ({}; {} bytes of memory are available); lower "
                            "--kv-cache-memory-bytes, --max-num-seqs or --max-model-len",
                            bytes, std::strerror(error), available_memory_bytes()),
                "kv-cache-memory-bytes");
  }
  KvMemory result{{memory, [size](void* base) { munmap(base, size); }}, nullptr};
  result.one = reinterpret_cast<float*>(static_cast<std::byte*>(memory) + bytes);
  *result.one = 1.0f;
  return result;
}

KvCache::KvCache(const AttentionGroup& group, int64_t layers, int64_t blocks, KvMemory memory)
    : memory_(std::move(memory)), blocks_(blocks) {
  auto* next = static_cast<std::byte*>(memory_.memory.get());
  const auto take = [&](int64_t n) { return std::exchange(next, next + n); };
  for (int64_t layer = 0; layer < layers; ++layer) {
    PagedKv kv = kv_of(group, blocks);
    kv.k = take(k_plane_bytes(kv));
    kv.v = take(v_plane_bytes(kv));
    if (kv.scaling == KvScaling::kTokenHead) {
      const int64_t scales = plane_scales(kv) * static_cast<int64_t>(sizeof(float));
      kv.k_scales = reinterpret_cast<float*>(take(scales));
      kv.v_scales = reinterpret_cast<float*>(take(scales));
    } else if (kv.scaling == KvScaling::kTensor) {
      kv.k_scales = kv.v_scales = memory_.one;
    }
    layers_.push_back(kv);
  }
}

}  // namespace quire
