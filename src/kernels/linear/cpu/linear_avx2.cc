#include "kernels/linear/cpu/avx2_lanes.h"
#include "kernels/linear/cpu/panel_kernel.h"
#include "kernels/simd/avx2.h"

namespace quire {

const LinearKernels& linear_kernels_avx2() { return linear_kernels_of<Avx2Lanes, Avx2Isa>(); }

}  // namespace quire
