#include "kernels/attention/cpu/attention_kernel.h"
#include "kernels/simd/scalar.h"

namespace quire {

const AttentionKernels& attention_kernels_scalar() { return AttentionKernel<ScalarIsa>::table(); }

}  // namespace quire
