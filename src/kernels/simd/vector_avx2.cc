#include "kernels/simd/avx2.h"
#include "kernels/simd/vector_impl.h"

namespace quire {

const VectorKernels& vector_kernels_avx2() { return VectorImpl<Avx2Isa>::table(); }

}  // namespace quire
