#pragma once
// What both vendors' compilers add to C++ for device code, and the functions that both have built in.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/machine.h"
#include "emulator/shared_memory.h"
#include "emulator/wave.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline
#define __restrict__ __restrict
// In the section of shared memory; "used", or the compiler might keep what no other function touches elsewhere.
#define __shared__ static __attribute__((section("quire.shared"), used))

namespace emulator {
template <Index3 (*kIndex)()>
struct BuiltinIndex {
  unsigned get_x() const { return kIndex().x; }
  unsigned get_y() const { return kIndex().y; }
  unsigned get_z() const { return kIndex().z; }
  __declspec(property(get = get_x)) unsigned x;
  __declspec(property(get = get_y)) unsigned y;
  __declspec(property(get = get_z)) unsigned z;
};
}  // namespace emulator
inline constexpr emulator::BuiltinIndex<emulator::thread_index> threadIdx;
inline constexpr emulator::BuiltinIndex<emulator::block_index> blockIdx;
inline constexpr emulator::BuiltinIndex<emulator::block_size> blockDim;
inline constexpr emulator::BuiltinIndex<emulator::grid_size> gridDim;

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define EMULATOR_VECTOR(type, name, align2, align4)                \
  struct alignas(align2) name##2 {                                 \
    type x, y;                                                     \
  };                                                               \
  struct alignas(align4) name##4 {                                 \
    type x, y, z, w;                                               \
  };                                                               \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
EMULATOR_VECTOR(float, float, 8, 16)
EMULATOR_VECTOR(int, int, 8, 16)
EMULATOR_VECTOR(unsigned, uint, 8, 16)
EMULATOR_VECTOR(short, short, 4, 8)
EMULATOR_VECTOR(unsigned short, ushort, 4, 8)
EMULATOR_VECTOR(double, double, 16, 16)
#undef EMULATOR_VECTOR

// Barriers. Inlined, so that the place that is reported is the kernel's.
#define EMULATOR_INLINE __attribute__((always_inline)) inline
EMULATOR_INLINE void __syncthreads() { (void)emulator::block_barrier(false); }
EMULATOR_INLINE int __syncthreads_count(int predicate) { return emulator::block_barrier(predicate != 0); }
EMULATOR_INLINE int __syncthreads_or(int predicate) { return emulator::block_barrier(predicate != 0) > 0 ? 1 : 0; }
EMULATOR_INLINE int __syncthreads_and(int predicate) { return emulator::block_barrier(predicate == 0) == 0 ? 1 : 0; }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

namespace emulator {

// Shuffles: the lane that each lane gets its value from, or itself where that is not in its part of the wave.
struct ShuffleIn {
  uint64_t bits;
  int source;
};
template <class T>
EMULATOR_INLINE T shuffle_from(T value, int source) {
  static_assert(sizeof(T) <= 8);
  ShuffleIn mine{0, source};
  __builtin_memcpy(&mine.bits, &value, sizeof(T));
  const auto bits = together<ShuffleIn, uint64_t>(mine, [](std::span<const ShuffleIn> in, std::span<uint64_t> out) {
    for (size_t i = 0; i < in.size(); ++i) out[i] = in[static_cast<size_t>(in[i].source)].bits;
  });
  T result;
  __builtin_memcpy(&result, &bits, sizeof(T));
  return result;
}
// width: a power of two up to the wave's size.
template <class T>
EMULATOR_INLINE T shuffle_index(T value, int index, int width) {
  return shuffle_from(value, (lane() & ~(width - 1)) + (index & (width - 1)));
}
template <class T>
EMULATOR_INLINE T shuffle_xor(T value, int mask, int width) {
  const int other = lane() ^ mask;
  // Into a part that comes later the lane's own value is given.
  return shuffle_from(value, other >= (lane() & ~(width - 1)) + width ? lane() : other % kWave);
}
template <class T>
EMULATOR_INLINE T shuffle_up(T value, unsigned distance, int width) {
  const bool inside = (lane() & (width - 1)) >= static_cast<int>(distance);
  return shuffle_from(value, inside ? lane() - static_cast<int>(distance) : lane());
}
template <class T>
EMULATOR_INLINE T shuffle_down(T value, unsigned distance, int width) {
  const bool inside = (lane() & (width - 1)) + static_cast<int>(distance) < width;
  return shuffle_from(value, inside ? lane() + static_cast<int>(distance) : lane());
}
EMULATOR_INLINE uint64_t ballot(bool predicate) {
  return together<bool, uint64_t>(predicate, [](std::span<const bool> in, std::span<uint64_t> out) {
    uint64_t bits = 0;
    for (size_t i = 0; i < in.size(); ++i) bits |= uint64_t{in[i]} << i;
    for (uint64_t& lane_bits : out) lane_bits = bits;
  });
}

// Not instrumented: atomics are known to the records as such.
template <class T, class Change>
__attribute__((noinline, no_sanitize("address", "undefined"))) T change_atomically(T* at, Change change,
                                                                                   const void* place) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (address % sizeof(T) != 0) fault("an atomic change at an address that is not a multiple of the size", place);
  check_memory(at, sizeof(T), place);
  if (is_shared(address)) shared_image()->access(address, sizeof(T), AccessKind::kAtomic, place);
  const T before = *at;
  *at = change(before);
  return before;
}
__attribute__((noinline)) inline const void* here() { return __builtin_return_address(0); }

}  // namespace emulator

#define EMULATOR_ATOMIC(name, expression)                                 \
  template <class T>                                                      \
  EMULATOR_INLINE T name(T* at, std::type_identity_t<T> value) {          \
    return emulator::change_atomically(                                   \
        at, [=](T before) -> T { return expression; }, emulator::here()); \
  }
EMULATOR_ATOMIC(atomicAdd, before + value)
EMULATOR_ATOMIC(atomicSub, before - value)
EMULATOR_ATOMIC(atomicMax, before > value ? before : value)
EMULATOR_ATOMIC(atomicMin, before < value ? before : value)
EMULATOR_ATOMIC(atomicOr, before | value)
EMULATOR_ATOMIC(atomicAnd, before& value)
EMULATOR_ATOMIC(atomicXor, before ^ value)
EMULATOR_ATOMIC(atomicExch, ((void)before, value))
EMULATOR_ATOMIC(atomicInc, before >= value ? T{0} : before + 1)
EMULATOR_ATOMIC(atomicDec, before == 0 || before > value ? value : before - 1)
#undef EMULATOR_ATOMIC
template <class T>
EMULATOR_INLINE T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return emulator::change_atomically(
      at, [=](T before) { return before == expected ? value : before; }, emulator::here());
}

// Arithmetic.
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __dadd_rn(double x, double y) { return x + y; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline long long clock64() {
  emulator::pause();
  static long long clock = 0;
  return clock += 1000;
}

// Loads and stores that say how caches should take them.
template <class T>
EMULATOR_INLINE T __ldg(const T* from) {
  return *from;
}
template <class T>
EMULATOR_INLINE T __ldcg(const T* from) {
  return *from;
}
template <class T>
EMULATOR_INLINE T __ldcs(const T* from) {
  return *from;
}
template <class T>
EMULATOR_INLINE void __stcs(T* to, std::type_identity_t<T> value) {
  *to = value;
}
