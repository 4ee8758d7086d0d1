#include "kernels/simd/scalar.h"
#include "kernels/simd/vector_impl.h"

namespace quire {

const VectorKernels& vector_kernels_scalar() { return VectorImpl<ScalarIsa>::table(); }

}  // namespace quire
