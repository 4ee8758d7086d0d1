#include "kernels/attention/attention.h"

#include "base/cpu_isa.h"

namespace quire {

int64_t attention_scratch_floats(int32_t heads, int32_t kv_heads, int32_t head_dim) {
  const int64_t width = (head_dim + 15) / 16 * 16, states = int64_t{kQueryTile} * (heads / kv_heads);
  const int64_t tiles = 2 * kPartitionKeys * width;  // K and V of a partition
  const int64_t queries = states * width;            // scaled q, padded
  const int64_t running = 2 * states * (2 + width) + (2 + width) +
                          kPartitionKeys;  // chunk and total states, one partition's state, weights
  constexpr int64_t kAlignmentSlack = 8 * 16;
  return tiles + queries + running + kAlignmentSlack;
}

const AttentionKernels& attention_kernels() {
  switch (cpu_isa()) {
    case CpuIsa::kAvx512:
      return attention_kernels_avx512();
    case CpuIsa::kAvx2:
      return attention_kernels_avx2();
    case CpuIsa::kScalar:
      break;
  }
  return attention_kernels_scalar();
}

}  // namespace quire
