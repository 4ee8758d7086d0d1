#include "kernels/attention/attention.h"

#include <algorithm>

#include "base/cpu_isa.h"
#include "kernels/attention/merge.h"

namespace quire {

// About 192 (row, head) pairs share the loading of a partition's K and V, which then costs a few percent of their
// products.
int32_t attention_tile_rows(int32_t heads, int32_t kv_heads) {
  constexpr int32_t kStates = 192;
  return std::max(1, kStates / (heads / kv_heads));
}

int64_t gathered_floats(const PagedKv& kv) {
  const int64_t scales = kv.scaling == KvScaling::kNone ? 0 : 2;
  return kPartitionKeys * (kv.head_dim + attention_width(kv.v_head_dim) + scales);
}

int64_t attention_scratch_floats(int32_t heads, const PagedKv& kv) {
  const int64_t width = attention_width(kv.v_head_dim),
                states = int64_t{attention_tile_rows(heads, kv.kv_heads)} * (heads / kv.kv_heads);
  // q, scores, the partition's values, all values
  const int64_t rows = states * (kv.head_dim + kPartitionKeys + 2 * width);
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
