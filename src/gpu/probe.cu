#include "gpu/probe.h"
#include "gpu/runtime.h"

namespace quire::gpu {
namespace {

__global__ void nothing() {}

}  // namespace

bool has_code_for_device() {
  NativeFunctionAttributes attributes{};
  if (QUIRE_RUNTIME(FuncGetAttributes)(&attributes, reinterpret_cast<const void*>(nothing)) == kSuccess) return true;
  (void)QUIRE_RUNTIME(GetLastError)();
  return false;
}

}  // namespace quire::gpu
