#include "kernels/linear/cpu/panel_kernel.h"
#include "kernels/simd/scalar.h"

namespace quire {

const LinearKernels& linear_kernels_scalar() { return PanelKernel<ScalarIsa>::table(); }

}  // namespace quire
