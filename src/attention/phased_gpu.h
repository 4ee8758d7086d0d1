#pragma once
// The backend that runs on the GPU. The views of a batch, its q, out, caches and workspace are of device memory: plan()
// reads the phases' ranges and keeps pointers, run() puts kernels on the stream.
#include <memory>

#include "attention/backend.h"
#include "gpu/device.h"
#include "gpu/stream.h"
#include "kernels/attention/gpu/attention.h"

namespace quire {

// choice: which of the kernels, for tests. The slopes of a group are of host memory; a plan keeps a copy on the device.
// A plan of a decode-only step has the same launches for any contents of its buffers up to the planned maxima, so they
// can be captured. The steps of one plan run one after another on `stream`.
std::unique_ptr<AttentionBackend> make_gpu_phased_backend(
    gpu::Stream& stream, const gpu::DeviceInfo& device, ExtendStrategy strategy = ExtendStrategy::kPaged,
    gpu::AttentionKernelChoice choice = gpu::AttentionKernelChoice::kBest);

}  // namespace quire
