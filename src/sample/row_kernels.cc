#include "sample/row_kernels.h"

namespace quire {

const RowKernels& row_kernels(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return kRowKernelsScalar;
    case CpuIsa::kAvx2:
      return kRowKernelsAvx2;
    case CpuIsa::kAvx512:
      return kRowKernelsAvx512;
  }
  return kRowKernelsScalar;
}

}  // namespace quire
