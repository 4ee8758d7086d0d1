#pragma once
// What the lanes of an emulated wave do together. Included by device code under the emulator: the software versions of
// shuffles, ballots and matrix instructions are written with it.
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace emulator {

#if defined(__HIP_PLATFORM_AMD__)
constexpr int kWave = 64;
#else
constexpr int kWave = 32;
#endif

namespace internal {
// in, out: kWave entries each, by lane.
using Compute = void (*)(const void* context, const std::byte* in, std::byte* out);
__attribute__((convergent, nomerge)) void meet(const void* mine, size_t in_bytes, void* result, size_t out_bytes,
                                               Compute compute, const void* context);
}  // namespace internal

int lane();  // of the calling thread in its wave

// All lanes of the calling thread's wave hand in `mine`. When the last one has come, compute(in, out) runs once; each
// lane gets its own entry of `out`, which is zero before. A lane that returned, waits elsewhere or comes from another
// line of the source is a fault. It orders no accesses to memory: wave_barrier() does. Lanes that a block of another
// size than whole waves does not have are zero in `in`.
template <class In, class Out, class F>
__attribute__((always_inline)) inline Out together(const In& mine, F&& compute) {
  static_assert(std::is_trivially_copyable_v<In> && std::is_trivially_copyable_v<Out>);
  Out result;
  using Call = std::decay_t<F>;
  const Call call = std::forward<F>(compute);
  internal::meet(
      &mine, sizeof(In), &result, sizeof(Out),
      [](const void* context, const std::byte* in, std::byte* out) {
        (*static_cast<const Call*>(context))(std::span<const In>(reinterpret_cast<const In*>(in), kWave),
                                             std::span<Out>(reinterpret_cast<Out*>(out), kWave));
      },
      &call);
  return result;
}

// All lanes of the wave: what one did to memory before, others may rely on after.
__attribute__((convergent, nomerge)) void wave_barrier();

}  // namespace emulator
