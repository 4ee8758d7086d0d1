#include "kernels/attention/cpu/attention_kernel.h"
#include "kernels/attention/cpu/pieces_avx2.h"
#include "kernels/simd/avx2.h"

namespace quire {

const AttentionKernels& attention_kernels_avx2() { return AttentionKernel<Avx2Isa, Avx2Pieces>::table(); }

}  // namespace quire
