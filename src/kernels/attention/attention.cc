#include "kernels/attention/attention.h"

#include <algorithm>

#include "base/cpu_isa.h"
#include "kernels/attention/merge.h"

namespace quire {

// The more (row, head) pairs share the loading of a partition's K and V, the less it costs: with 768 a few percent of
// their products. But what they keep and the partition should stay in an L2 cache.
int32_t attention_tile_rows(int32_t heads, const PagedKv& kv) {
  constexpr int64_t kMost = 768, kLeast = 192, kFloats = 300'000;
  const int64_t floats = kv.head_dim + kPartitionKeys + attention_width(kv.v_head_dim);  // q, scores, values
  const int64_t states = std::clamp(kFloats / floats, kLeast, kMost), share = heads / kv.kv_heads;
  return static_cast<int32_t>(std::max(int64_t{1}, states / share));
}

int64_t gathered_floats(const PagedKv& kv) {
  const int64_t scales = kv.scaling == KvScaling::kNone ? 0 : 2;
  return kPartitionKeys * (kv.head_dim + attention_width(kv.v_head_dim) + scales);
}

int64_t attention_scratch_floats(int32_t heads, const PagedKv& kv) {
  const int64_t width = attention_width(kv.v_head_dim), share = heads / kv.kv_heads,
                states = attention_tile_rows(heads, kv) * share;
  // q, scores, all values; and those of one partition, of one group of rows for each KV head or of one row
  const int64_t rows =
      states * (kv.head_dim + kPartitionKeys + width) + std::max(share, int64_t{kPageStates} * kv.kv_heads) * width;
  // Six numbers a state; these arrays and those above start on whole vectors, for each KV head.
  const int64_t lanes = 6 * states + 10 * 16 * int64_t{kv.kv_heads};
  return (gathered_floats(kv) + 16 * attention_width(kv.head_dim) + rows + lanes + 2 * 16 + 15) / 16 * 16;
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

void merge_attention_states(const float* states, int64_t stride, int32_t count, int32_t v_head_dim, float* out,
                            float* lse) {
  attention_kernels().merge(states, stride, count, v_head_dim, out, lse);
}

}  // namespace quire
