#pragma once
// What everything on one GPU shares: the card, the queue of its work, and the library of matrix products.
#include "gpu/blas.h"
#include "gpu/device.h"
#include "gpu/stream.h"

namespace quire::gpu {

struct Context {
  DeviceInfo info = use_device();
  Stream stream;
  Blas blas{info};
};

}  // namespace quire::gpu
