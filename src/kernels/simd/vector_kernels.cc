#include "kernels/simd/vector_kernels.h"

#include "base/cpu_isa.h"

namespace quire {

const VectorKernels& vector_kernels() {
  switch (cpu_isa()) {
    case CpuIsa::kAvx512:
      return vector_kernels_avx512();
    case CpuIsa::kAvx2:
      return vector_kernels_avx2();
    case CpuIsa::kScalar:
      break;
  }
  return vector_kernels_scalar();
}

}  // namespace quire
