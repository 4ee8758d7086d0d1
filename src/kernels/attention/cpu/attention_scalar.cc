#include "kernels/attention/cpu/attention_kernel.h"
#include "kernels/attention/cpu/pieces_scalar.h"
#include "kernels/simd/scalar.h"

namespace quire {

const AttentionKernels& attention_kernels_scalar() { return AttentionKernel<ScalarIsa, ScalarPieces>::table(); }

}  // namespace quire
