#pragma once
// CUDA's runtime and language, emulated: waves of 32 lanes.
#include "vendor/device_language.h"

#define EMULATOR_RUNTIME(name) cuda##name
#include "vendor/runtime.h"
#undef EMULATOR_RUNTIME

using cudaDeviceProp = emulator::DeviceProperties;
using cudaFuncAttributes = emulator::FunctionAttributes;
inline cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) { return emulator::allocate(data, bytes); }
inline cudaError_t cudaFreeHost(void* data) { return emulator::release(data); }

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute, int value) {
  return emulator::allow_shared_bytes(reinterpret_cast<const void*>(kernel), value);
}

enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = emulator::kMajor;
  return cudaSuccess;
}

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization, cudaLaunchAttributeClusterDimension };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
    dim3 clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  constexpr size_t kAlwaysAllowed = 48 * 1024;
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = config->attrs[i].val.clusterDim.x;
  }
  if (!emulator::is_allowed(reinterpret_cast<const void*>(kernel), config->dynamicSmemBytes, kAlwaysAllowed)) {
    return emulator::fail(emulator::Status::kInvalidValue);
  }
  return emulator::launch(config->stream, kernel, config->gridDim, config->blockDim, cluster, config->dynamicSmemBytes,
                          static_cast<Parameters>(arguments)...);
}

// Lanes of a wave. Masks are of all lanes: what else they may be, no kernel uses.
EMULATOR_INLINE void emulator_check_mask(unsigned mask) {
  if (mask != 0xffffffffu) emulator::fault("a mask that is not of all lanes", emulator::here());
}
template <class T>
EMULATOR_INLINE T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  emulator_check_mask(mask);
  return emulator::shuffle_index(value, lane, width);
}
template <class T>
EMULATOR_INLINE T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  emulator_check_mask(mask);
  return emulator::shuffle_xor(value, lane_mask, width);
}
template <class T>
EMULATOR_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  emulator_check_mask(mask);
  return emulator::shuffle_up(value, distance, width);
}
template <class T>
EMULATOR_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  emulator_check_mask(mask);
  return emulator::shuffle_down(value, distance, width);
}
EMULATOR_INLINE unsigned __ballot_sync(unsigned mask, int predicate) {
  emulator_check_mask(mask);
  return static_cast<unsigned>(emulator::ballot(predicate != 0));
}
EMULATOR_INLINE int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0 ? 1 : 0; }
EMULATOR_INLINE int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask ? 1 : 0; }
EMULATOR_INLINE void __syncwarp(unsigned mask = ~0u) {
  emulator_check_mask(mask);
  emulator::wave_barrier();
}
inline void __nanosleep(unsigned) { emulator::pause(); }
