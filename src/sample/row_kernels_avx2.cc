#include "sample/row_kernels_impl.h"

namespace quire {

constinit const RowKernels kRowKernelsAvx2 = kKernels;

}  // namespace quire
