#include "sample/row_kernels_impl.h"

namespace quire {

constinit const RowKernels kRowKernelsAvx512 = kKernels;

}  // namespace quire
