#pragma once
// The one file that names the runtime of CUDA or HIP: the rest of the GPU sources use the names below. Included by GPU
// sources only (*.cu, *_gpu.cc).
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "gpu/stream.h"

#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime.h>
#define QUIRE_RUNTIME(name) hip##name
#else
#include <cuda_runtime.h>
#define QUIRE_RUNTIME(name) cuda##name
#endif

namespace quire::gpu {

using Status = QUIRE_RUNTIME(Error_t);
using NativeStream = QUIRE_RUNTIME(Stream_t);
using NativeEvent = QUIRE_RUNTIME(Event_t);
using NativeGraph = QUIRE_RUNTIME(Graph_t);
using NativeGraphExec = QUIRE_RUNTIME(GraphExec_t);
#if defined(__HIP_PLATFORM_AMD__)
using NativeDeviceProperties = hipDeviceProp_t;
using NativeFunctionAttributes = hipFuncAttributes;
inline Status allocate_pinned(void** data, size_t bytes) { return hipHostMalloc(data, bytes, 0); }
inline Status free_pinned(void* data) { return hipHostFree(data); }
// The architecture is followed by what is switched on: gfx942:sramecc+:xnack-.
inline std::string architecture_of(const NativeDeviceProperties& properties) {
  const std::string_view name = properties.gcnArchName;
  return std::string(name.substr(0, name.find(':')));
}
#else
using NativeDeviceProperties = cudaDeviceProp;
using NativeFunctionAttributes = cudaFuncAttributes;
inline Status allocate_pinned(void** data, size_t bytes) { return cudaHostAlloc(data, bytes, 0); }
inline Status free_pinned(void* data) { return cudaFreeHost(data); }
inline std::string architecture_of(const NativeDeviceProperties& properties) {
  return "compute capability " + std::to_string(properties.major) + "." + std::to_string(properties.minor);
}
#endif
#if defined(__HIP_PLATFORM_AMD__)
constexpr std::string_view kPlatform = "HIP";
#else
constexpr std::string_view kPlatform = "CUDA";
#endif
constexpr Status kSuccess = QUIRE_RUNTIME(Success);

inline const char* status_text(Status status) { return QUIRE_RUNTIME(GetErrorString)(status); }

// Throws Error(kInternal) that names the call.
inline void check(Status status, std::string_view call) {
  if (status != kSuccess) {
    (void)QUIRE_RUNTIME(GetLastError)();  // what is reported here is not to be found again by the next launch
    // Not fmt: nvcc can't evaluate its check of the format.
    throw Error(ErrorKind::kInternal, "GPU: " + std::string(call) + " failed: " + status_text(status));
  }
}

inline NativeStream native_of(const Stream& stream) { return static_cast<NativeStream>(stream.native()); }
inline NativeEvent native_of(const Event& event) { return static_cast<NativeEvent>(event.native()); }

// Launches a kernel on the stream, and counts it there unless the stream is being captured. More than 48 KB of dynamic
// shared memory: call allow_shared_memory() once before.
template <class... Parameters, class... Arguments>
void launch(Stream& stream, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            Arguments&&... arguments) {
#if defined(__HIP_PLATFORM_AMD__)
  hipLaunchKernelGGL(kernel, grid, block, shared_bytes, native_of(stream), static_cast<Parameters>(arguments)...);
  check(hipGetLastError(), "kernel launch");
#else
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes, config.stream = native_of(stream);
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "kernel launch");
#endif
  stream.count_launch();
}

// Whether the device of the calling thread has clusters of blocks, and kernels that overlap.
inline bool can_cluster() {
#if defined(__HIP_PLATFORM_AMD__)
  return false;
#else
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  return major >= 9;
#endif
}

// The same, but the kernel may start while the one before it on the stream still runs, when all blocks of that one have
// called let_next_kernel_start() or returned. The kernel calls wait_for_previous_kernel() in every block before it
// reads what earlier kernels wrote or writes anything; before that it may read what has been there for longer. Where
// the device can't overlap kernels this is launch(). cluster: so many neighbouring blocks run side by side
// (gpu/cluster.h); 1 where can_cluster() is false.
template <class... Parameters, class... Arguments>
void launch_overlapping(Stream& stream, void (*kernel)(Parameters...), dim3 grid, dim3 block, unsigned cluster,
                        size_t shared_bytes, Arguments&&... arguments) {
#if !defined(__HIP_PLATFORM_AMD__)
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = cluster, attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes, config.stream = native_of(stream);
  config.attrs = attributes, config.numAttrs = !can_cluster() ? 0 : cluster > 1 ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "kernel launch");
  stream.count_launch();
#else
  (void)cluster;
  launch(stream, kernel, grid, block, shared_bytes, std::forward<Arguments>(arguments)...);
#endif
}

// launch_overlapping() for a kernel that waits before anything else. That pays for short kernels (0.3 us each on an
// H200) and costs kernels of very many small blocks.
template <class... Parameters, class... Arguments>
void launch_early(Stream& stream, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                  Arguments&&... arguments) {
  launch_overlapping(stream, kernel, grid, block, 1, shared_bytes, std::forward<Arguments>(arguments)...);
}

template <class... Parameters>
void allow_shared_memory(void (*kernel)(Parameters...), size_t bytes) {
#if defined(__HIP_PLATFORM_AMD__)
  (void)kernel, (void)bytes;  // all 64 KB of a workgroup are there without asking
#else
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
#endif
}

// How many blocks of the kernel, without dynamic shared memory, a multiprocessor holds at once.
template <class... Parameters>
int blocks_per_multiprocessor(void (*kernel)(Parameters...), int threads) {
  int blocks = 0;
  check(QUIRE_RUNTIME(OccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, kernel, threads, 0), "occupancy of a kernel");
  return blocks;
}

}  // namespace quire::gpu
