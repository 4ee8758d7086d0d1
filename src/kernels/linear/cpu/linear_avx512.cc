#include "kernels/linear/cpu/panel_kernel.h"
#include "kernels/simd/avx512.h"

namespace quire {

const LinearKernels& linear_kernels_avx512() { return PanelKernel<Avx512Isa>::table(); }

}  // namespace quire
