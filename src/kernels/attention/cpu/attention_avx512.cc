#include "kernels/attention/cpu/attention_kernel.h"
#include "kernels/attention/cpu/pieces_avx512.h"
#include "kernels/simd/avx512.h"

namespace quire {

const AttentionKernels& attention_kernels_avx512() { return AttentionKernel<Avx512Isa, Avx512Pieces>::table(); }

}  // namespace quire
