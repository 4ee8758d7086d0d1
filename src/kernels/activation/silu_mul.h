#pragma once
// SwiGLU (arXiv 2002.05202): y = silu(gate) * up.
#include <cstdint>

#include "base/thread_pool.h"

namespace quire {

// gate_up [m, 2n]: gate in columns [0, n), up in [n, 2n); y [m, n], may be gate_up itself only if ldy == 2n.
void silu_mul(const float* gate_up, float* y, int64_t ldy, int64_t m, int64_t n, ThreadPool& pool);

}  // namespace quire
