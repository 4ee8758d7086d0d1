#pragma once
// Loops that do one thing as fast as one core can: what the limits of a machine are measured with.
#include <cstddef>
#include <cstdint>

namespace quire {

// `bytes` is a multiple of kLineBytes and the memory aligned to it. What the loops return depends on all that they did.
struct DeviceKernels {
  static constexpr size_t kLineBytes = 256;

  uint64_t (*read)(const std::byte* data, size_t bytes);
  // `streaming` stores pass the caches by; it is what large copies are fastest with.
  void (*copy)(const std::byte* source, std::byte* destination, size_t bytes);
  void (*copy_streaming)(const std::byte* source, std::byte* destination, size_t bytes);

  // Operations from registers: multiply-adds count as two. A step is the work of one pass of the loop.
  float (*fma_f32)(int64_t steps);
  double fma_f32_operations;  // of one step
  int32_t (*dot_int8)(int64_t steps);
  double dot_int8_operations;
  const char* dot_int8_instructions;  // what the int8 loop is made of
};

const DeviceKernels& device_kernels();  // for cpu_isa()

const DeviceKernels& device_kernels_scalar();
const DeviceKernels& device_kernels_avx2();
const DeviceKernels& device_kernels_avx512();

}  // namespace quire
