#include "bench/gpu_limits.h"

namespace quire {

GpuScope quick_gpu_scope() {
  GpuScope scope;
  scope.cache = scope.copy = scope.f32 = false;
  scope.products = {{8192, 8192, 8192}};
  scope.most_bytes = int64_t{2} << 30;
  scope.runs = 3;
  scope.run_seconds = 0.002;
  return scope;
}

}  // namespace quire
