#include "kernels/simd/avx512.h"
#include "kernels/simd/vector_impl.h"

namespace quire {

const VectorKernels& vector_kernels_avx512() { return VectorImpl<Avx512Isa>::table(); }

}  // namespace quire
