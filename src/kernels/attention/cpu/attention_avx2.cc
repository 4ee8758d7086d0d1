#include "kernels/attention/cpu/attention_kernel.h"
#include "kernels/simd/avx2.h"

namespace quire {

const AttentionKernels& attention_kernels_avx2() { return AttentionKernel<Avx2Isa>::table(); }

}  // namespace quire
