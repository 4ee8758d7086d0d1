#pragma once
// HIP's runtime and language, emulated: waves of 64 lanes.
#include "vendor/device_language.h"

#define EMULATOR_RUNTIME(name) hip##name
#include "vendor/runtime.h"
#undef EMULATOR_RUNTIME

using hipDeviceProp_t = emulator::DeviceProperties;
using hipFuncAttributes = emulator::FunctionAttributes;
inline hipError_t hipHostMalloc(void** data, size_t bytes, unsigned) { return emulator::allocate(data, bytes); }
inline hipError_t hipHostFree(void* data) { return emulator::release(data); }

template <class... Parameters, class... Arguments>
void hipLaunchKernelGGL(void (*kernel)(Parameters...), const dim3& grid, const dim3& block, size_t shared_bytes,
                        hipStream_t stream, Arguments... arguments) {
  constexpr size_t kWorkgroupBytes = 64 * 1024;
  if (shared_bytes > kWorkgroupBytes) {
    (void)emulator::fail(emulator::Status::kInvalidValue);
    return;
  }
  (void)emulator::launch(stream, kernel, grid, block, 1, shared_bytes, static_cast<Parameters>(arguments)...);
}

template <class T>
EMULATOR_INLINE T __shfl(T value, int lane, int width = 64) {
  return emulator::shuffle_index(value, lane, width);
}
template <class T>
EMULATOR_INLINE T __shfl_xor(T value, int lane_mask, int width = 64) {
  return emulator::shuffle_xor(value, lane_mask, width);
}
template <class T>
EMULATOR_INLINE T __shfl_up(T value, unsigned distance, int width = 64) {
  return emulator::shuffle_up(value, distance, width);
}
template <class T>
EMULATOR_INLINE T __shfl_down(T value, unsigned distance, int width = 64) {
  return emulator::shuffle_down(value, distance, width);
}
EMULATOR_INLINE unsigned long long __ballot(int predicate) { return emulator::ballot(predicate != 0); }
EMULATOR_INLINE int __any(int predicate) { return emulator::ballot(predicate != 0) != 0 ? 1 : 0; }
EMULATOR_INLINE int __all(int predicate) { return emulator::ballot(predicate == 0) == 0 ? 1 : 0; }

// The compiler's own.
EMULATOR_INLINE void __builtin_amdgcn_wave_barrier() { emulator::wave_barrier(); }
EMULATOR_INLINE void __builtin_amdgcn_s_barrier() { (void)emulator::block_barrier(false); }
inline void __builtin_amdgcn_fence(int, const char*) {}
inline void __builtin_amdgcn_s_sleep(int) { emulator::pause(); }
enum {
  __HIP_MEMORY_SCOPE_WAVEFRONT,
  __HIP_MEMORY_SCOPE_WORKGROUP,
  __HIP_MEMORY_SCOPE_AGENT,
  __HIP_MEMORY_SCOPE_SYSTEM
};
#define __hip_atomic_load(from, order, scope) (::emulator::load_atomically(from))
#define __hip_atomic_store(to, value, order, scope) (::emulator::store_atomically(to, value))
namespace emulator {
template <class T>
EMULATOR_INLINE T load_atomically(const T* from) {
  pause();
  return change_atomically(
      const_cast<T*>(from), [](T value) { return value; }, here());
}
template <class T>
EMULATOR_INLINE void store_atomically(T* to, std::type_identity_t<T> value) {
  (void)change_atomically(
      to, [=](T) { return value; }, here());
}
}  // namespace emulator
