// What the compiler calls for each access to memory in device code (CMakeLists.txt has the options that make it do so):
// AddressSanitizer's check, and the records of shared memory.
#include <sanitizer/asan_interface.h>

#include <cstring>
#include <string>

#include "emulator/machine.h"
#include "emulator/shared_memory.h"

extern "C" {
void __asan_loadN(uintptr_t, uintptr_t);
void __asan_storeN(uintptr_t, uintptr_t);
}

namespace emulator {
namespace {

// Whether AddressSanitizer may know something against an access that does not cross 16 bytes.
inline bool is_suspicious(uintptr_t address, size_t size) {
  constexpr uintptr_t kShadow = 0x7fff8000;
  const auto shadow_of = [](uintptr_t at) { return *reinterpret_cast<const int8_t*>((at >> 3) + kShadow); };
  return (shadow_of(address) | shadow_of(address + size - 1)) != 0;
}

void outside(uintptr_t address, size_t size, bool writes, const void* place) {
  if (__asan_region_is_poisoned(reinterpret_cast<void*>(address), size) == nullptr) return;
  __asan_describe_address(reinterpret_cast<void*>(address));
  fault(std::string(writes ? "a write" : "a read") + " of " + std::to_string(size) + " bytes outside of memory", place);
}

template <bool kWrites>
inline void seen(uintptr_t address, size_t size, const void* place) {
  if (!running.active) {
    (kWrites ? __asan_storeN : __asan_loadN)(address, size);
    return;
  }
  if (size > 16 || is_suspicious(address, size)) outside(address, size, kWrites, place);
  if (--running.accesses_left < 0) end_turn();
  if (!is_shared(address)) return;
  if (!kWrites && shared_image()->is_read_again(address, size)) return;
  shared_image()->access(address, size, kWrites ? AccessKind::kWrite : AccessKind::kRead, place);
}

}  // namespace

void check_memory(const void* address, size_t bytes, const void* place) {
  if (bytes == 0 || __asan_region_is_poisoned(const_cast<void*>(address), bytes) == nullptr) return;
  fault("a read of " + std::to_string(bytes) + " bytes outside of memory", place);
}

}  // namespace emulator

extern "C" {

// Code without checks, the emulator's and the host's, shares containers with code that has them; and what a thread that
// a fault ended had on its stack is not freed.
const char* __asan_default_options() { return "detect_container_overflow=0:detect_leaks=0"; }

#define EMULATOR_ACCESS(size)                                                                                        \
  void emulator_load##size(uintptr_t address) { emulator::seen<false>(address, size, __builtin_return_address(0)); } \
  void emulator_store##size(uintptr_t address) { emulator::seen<true>(address, size, __builtin_return_address(0)); }
EMULATOR_ACCESS(1)
EMULATOR_ACCESS(2)
EMULATOR_ACCESS(4)
EMULATOR_ACCESS(8)
EMULATOR_ACCESS(16)
#undef EMULATOR_ACCESS

void emulator_loadN(uintptr_t address, uintptr_t size) {
  if (size > 0) emulator::seen<false>(address, size, __builtin_return_address(0));
}
void emulator_storeN(uintptr_t address, uintptr_t size) {
  if (size > 0) emulator::seen<true>(address, size, __builtin_return_address(0));
}

#define EMULATOR_COPY(name)                                                                      \
  void* emulator_##name(void* to, const void* from, uintptr_t size) {                            \
    if (size == 0) return to;                                                                    \
    emulator::seen<false>(reinterpret_cast<uintptr_t>(from), size, __builtin_return_address(0)); \
    emulator::seen<true>(reinterpret_cast<uintptr_t>(to), size, __builtin_return_address(0));    \
    return __builtin_##name(to, from, size);                                                     \
  }
EMULATOR_COPY(memcpy)
EMULATOR_COPY(memmove)
#undef EMULATOR_COPY

void* emulator_memset(void* to, int value, uintptr_t size) {
  if (size == 0) return to;
  emulator::seen<true>(reinterpret_cast<uintptr_t>(to), size, __builtin_return_address(0));
  return __builtin_memset(to, value, size);
}

}  // extern "C"
