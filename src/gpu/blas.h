#pragma once
// Matrix products by the vendor's library, cuBLASLt or hipBLASLt, which is opened at run time: a machine without it
// still runs everything else.
#include <cstdint>
#include <memory>
#include <span>

#include "gpu/device.h"
#include "gpu/stream.h"
#include "tensor/dtype.h"

namespace quire::gpu {

// For one stream at a time: products share a workspace of 32 MiB.
class Blas {
 public:
  // Throws Error(kUnavailable) naming the library, the files that were tried, or why this device can't.
  explicit Blas(const DeviceInfo& device);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // y[m, n] = x[m, k] w[n, k]^T, plus y if `accumulate`; rows of x and y are ldx and ldy elements apart, those of w are
  // contiguous. x and w are kF32 (no TF32), kF16 or kBF16; y is kF32 or the type of x. Sums in f32. The first product
  // of a shape asks the library for an algorithm and keeps it (host memory is allocated then only); inside a graph it
  // may come first too.
  void matmul(const void* x, int64_t ldx, const void* w, void* y, int64_t ldy, int64_t m, int64_t n, int64_t k,
              DType type, DType y_type, bool accumulate, Stream& stream);

  // Times the library's best candidates for the shape and keeps the fastest. `weights`: matrices as w above, used in
  // turn; more bytes than the caches hold make them come from memory, as in a model. y is overwritten. The host waits.
  void tune(const void* x, int64_t ldx, std::span<const void* const> weights, void* y, int64_t ldy, int64_t m,
            int64_t n, int64_t k, DType type, DType y_type, bool accumulate, Stream& stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::gpu
