#include <algorithm>
#include <type_traits>

#include "gpu/vector.h"
#include "kernels/fill/gpu/fill.h"

namespace quire::gpu {
namespace {

constexpr int kThreads = 256;

// An array of any alignment as a few loose elements, units that begin at multiples of 16 bytes, and a few loose
// elements.
template <int kUnit>
struct Units {
  int64_t count, head, units;

  template <class T>
  static Units starting_at(const T* array, int64_t count) {
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(array) % 16);
    const int64_t head = std::min(count, past == 0 ? 0 : (16 - past) / static_cast<int64_t>(sizeof(T)));
    return {count, head, (count - head) / kUnit};
  }
  static Units none(int64_t count) { return {count, count, 0}; }
  // One for each unit, then one for each loose element.
  __host__ __device__ int64_t threads() const { return count - units * (kUnit - 1); }
  // Of thread i: the first element it has to do, and whether that is one of a unit.
  __device__ bool is_unit(int64_t i) const { return i < units; }
  __device__ int64_t first(int64_t i) const {
    if (i < units) return head + i * kUnit;
    const int64_t loose = i - units;
    return loose < head ? loose : loose + units * kUnit;
  }
};

// The finalizer of splitmix64.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

struct DummyKeys {
  uint32_t first, second;
};

// checkpoint/dummy.h has the definition.
__device__ inline float dummy_element(uint32_t low, DummyKeys keys) {
  uint32_t x = low + keys.first;
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ keys.second ^ x >> 15) * 0x846ca68bu;
  // The upper 24 bits are a signed number; left where they are, times 2^8, they convert as exactly.
  return static_cast<float>(static_cast<int32_t>((x ^ x >> 16) & 0xffffff00u)) * (1e-3f * 0x1p-23f * 0x1p-8f);
}

// 16 bytes.
template <class T>
constexpr int kElements = 16 / static_cast<int>(sizeof(T));

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(T* weights, Units<kElements<T>> units, DummyKeys keys, uint32_t low) {
  constexpr int kUnit = kElements<T>;
  const int64_t threads = units.threads(), stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < threads; i += stride) {
    const int64_t at = units.first(i);
    const uint32_t index = low + static_cast<uint32_t>(at);
    if (units.is_unit(i)) {
      float values[kUnit];
#pragma unroll
      for (int e = 0; e < kUnit; ++e) values[e] = dummy_element(index + static_cast<uint32_t>(e), keys);
      store_floats(values, weights + at);
    } else {
      weights[at] = from_float<T>(dummy_element(index, keys));
    }
  }
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(const From* source, To* destination, Units<kElements<To>> units) {
  constexpr int kUnit = kElements<To>;
  const int64_t threads = units.threads(), stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < threads; i += stride) {
    const int64_t at = units.first(i);
    if (units.is_unit(i)) {
      float values[kUnit];
      load_floats(source + at, values);
      store_floats(values, destination + at);
    } else {
      destination[at] = from_float<To>(to_float(source[at]));
    }
  }
}

// Enough blocks to fill any device some times over; the rest is a loop.
template <int kUnit>
unsigned blocks_of(const Units<kUnit>& units) {
  return static_cast<unsigned>(std::min<int64_t>((units.threads() + kThreads - 1) / kThreads, 1 << 14));
}

}  // namespace

void fill_dummy(void* weights, DType dtype, int64_t count, uint64_t tensor_hash, int64_t first, Stream& stream) {
  with_activation_type(dtype, [&](auto element) {
    using T = decltype(element);
    auto* to = static_cast<T*>(weights);
    while (count > 0) {  // in runs that share the high half of the index
      const auto index = static_cast<uint64_t>(first);
      const auto low = static_cast<uint32_t>(index);
      const int64_t run = std::min(count, (int64_t{1} << 32) - int64_t{low});
      const uint64_t hash = mix(tensor_hash + (index >> 32));
      const DummyKeys keys{static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
      const auto units = Units<kElements<T>>::starting_at(to, run);
      gpu::launch(stream, fill_kernel<T>, dim3(blocks_of(units)), dim3(kThreads), 0, to, units, keys, low);
      first += run;
      count -= run;
      to += run;
    }
  });
}

void convert(const void* source, DType from, void* destination, DType to, int64_t count, Stream& stream) {
  if (count == 0) return;
  with_activation_type(from, [&](auto from_element) {
    with_activation_type(to, [&](auto to_element) {
      using From = decltype(from_element);
      using To = decltype(to_element);
      const auto* in = static_cast<const From*>(source);
      auto* out = static_cast<To*>(destination);
      if constexpr (std::is_same_v<From, To>) {
        if (source != destination) {
          stream.copy_on_device(destination, source, static_cast<size_t>(count) * sizeof(To));
        }
      } else {
        auto units = Units<kElements<To>>::starting_at(out, count);
        if (!is_aligned_16(in + units.head)) units = units.none(count);
        gpu::launch(stream, convert_kernel<From, To>, dim3(blocks_of(units)), dim3(kThreads), 0, in, out, units);
      }
    });
  });
}

}  // namespace quire::gpu
