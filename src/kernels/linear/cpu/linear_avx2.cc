#include "kernels/linear/cpu/panel_kernel.h"
#include "kernels/simd/avx2.h"

namespace quire {

const LinearKernels& linear_kernels_avx2() { return PanelKernel<Avx2Isa>::table(); }

}  // namespace quire
