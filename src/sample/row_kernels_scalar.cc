#include "sample/row_kernels_impl.h"

namespace quire {

constinit const RowKernels kRowKernelsScalar = kKernels;

}  // namespace quire
