#include "bench/gpu_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "bench/gpu/limit_kernels.h"
#include "bench/gpu_timing.h"
#include "bench/timing.h"
#include "gpu/context.h"
#include "gpu/memory.h"
#include "kernels/fill/gpu/fill.h"

namespace quire {
namespace {

using gpu::kLimitTileBytes;

class Measurement {
 public:
  explicit Measurement(const GpuScope& scope) : scope_(scope) {}

  DeviceLimits run() {
    const gpu::DeviceInfo& info = context_.info;
    DeviceLimits limits;
    limits.card = info.name;
    limits.architecture = info.architecture;
    limits.multiprocessors = info.multiprocessors;
    limits.card_bytes = static_cast<int64_t>(info.total_bytes);
    limits.last_cache_bytes = static_cast<int64_t>(info.l2_bytes);
    take_memory();
    limits.memory_bytes = static_cast<int64_t>(bytes_);
    limits.read_memory = read();
    if (scope_.cache) {
      // Beyond what all L1 caches hold, and well inside each half of the L2.
      const size_t set = std::min(whole_tiles(info.l2_bytes / 4), bytes_);
      limits.cache_bytes = static_cast<int64_t>(set);
      limits.read_cache = read_cache(set);
    }
    if (scope_.copy) limits.copy_memory = copy();
    if (scope_.f32) limits.fma_f32 = multiply_adds();
    for (MatrixRate product : scope_.products) {
      if (!fits(product)) continue;
      product.rate = multiply(product);
      limits.products.push_back(product);
    }
    return limits;
  }

 private:
  static size_t whole_tiles(size_t bytes) {
    return std::max<size_t>(bytes / (2 * kLimitTileBytes), 1) * 2 * kLimitTileBytes;  // two: a copy splits it in halves
  }

  void take_memory() {
    bytes_ = whole_tiles(std::min(static_cast<size_t>(scope_.most_bytes), gpu::free_device_bytes() / 2));
    memory_ = gpu::DeviceMemory(bytes_);
    sums_ = gpu::DeviceMemory(gpu::kReadSums * sizeof(uint32_t));
    context_.stream.zero(sums_.data(), sums_.bytes());
    gpu::fill_dummy(memory_.data(), DType::kBF16, static_cast<int64_t>(bytes_ / 2), 1, 0, context_.stream);
  }

  template <class Fn>
  MeasuredRate rate_of(double amount, Fn&& fn) {
    gpu::Stream& stream = context_.stream;
    fn();  // what is set up at the first use
    const double once = std::max(gpu_seconds_of(stream, fn), 1e-7);
    const auto repeats = static_cast<int>(std::clamp(std::ceil(scope_.run_seconds / once), 1.0, 1e4));
    std::vector<double> rates;
    for (int run = 0; run < scope_.runs; ++run) {
      const double seconds = gpu_seconds_of(stream, [&] {
        for (int i = 0; i < repeats; ++i) fn();
      });
      rates.push_back(amount * repeats / seconds * 1e-9);
    }
    return {*std::max_element(rates.begin(), rates.end()), median(rates)};
  }

  static void keep_faster(MeasuredRate& best, const MeasuredRate& other) {
    if (other.best > best.best) best = other;
  }

  // Which way is the fastest depends on the card.
  template <class Fn>
  static MeasuredRate fastest_way(unsigned resident, Fn&& rate_of_way) {
    MeasuredRate best;
    for (const int loads : {4, 8, 16}) {
      for (const unsigned blocks : {0U, resident}) keep_faster(best, rate_of_way(gpu::ReadWay{loads, blocks}));
    }
    return best;
  }

  unsigned resident_blocks() const {
    constexpr unsigned kOfMultiprocessor = 8;
    return static_cast<unsigned>(context_.info.multiprocessors) * kOfMultiprocessor;
  }

  uint32_t* sums() { return static_cast<uint32_t*>(sums_.data()); }

  MeasuredRate read() {
    return fastest_way(resident_blocks(), [&](const gpu::ReadWay& way) {
      return rate_of(static_cast<double>(bytes_),
                     [&] { gpu::read_memory(memory_.data(), bytes_, 1, way, sums(), context_.stream); });
    });
  }

  MeasuredRate read_cache(size_t set) {
    constexpr int kPasses = 64;
    return fastest_way(resident_blocks(), [&](const gpu::ReadWay& way) {
      return rate_of(static_cast<double>(set) * kPasses,
                     [&] { gpu::read_memory(memory_.data(), set, kPasses, way, sums(), context_.stream); });
    });
  }

  MeasuredRate copy() {
    const size_t half = bytes_ / 2;
    auto* to = static_cast<std::byte*>(memory_.data()) + half;
    MeasuredRate best =
        rate_of(static_cast<double>(2 * half), [&] { gpu::copy_memory(memory_.data(), to, half, context_.stream); });
    keep_faster(best, rate_of(static_cast<double>(2 * half),
                              [&] { context_.stream.copy_on_device(to, memory_.data(), half); }));
    return best;
  }

  MeasuredRate multiply_adds() {
    constexpr int64_t kSteps = 1 << 12;
    const unsigned blocks = resident_blocks();
    const gpu::DeviceMemory out(size_t{blocks} * gpu::kMultiplyAddThreads * sizeof(float));
    const double operations =
        gpu::kMultiplyAddOperations * static_cast<double>(kSteps) * blocks * gpu::kMultiplyAddThreads;
    const MeasuredRate rate = rate_of(
        operations, [&] { gpu::multiply_add(kSteps, blocks, static_cast<float*>(out.data()), context_.stream); });
    return rate;
  }

  // x, w and y lie one after another in the memory that was filled.
  static size_t product_bytes(const MatrixRate& p) {
    return static_cast<size_t>(p.m * p.k + p.n * p.k + p.m * p.n) * sizeof(uint16_t);
  }
  bool fits(const MatrixRate& p) const { return product_bytes(p) <= bytes_; }

  MeasuredRate multiply(const MatrixRate& p) {
    auto* x = static_cast<uint16_t*>(memory_.data());
    uint16_t *w = x + p.m * p.k, *y = w + p.n * p.k;
    const double operations = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    const MeasuredRate rate = rate_of(operations, [&] {
      context_.blas.matmul(x, p.k, w, y, p.n, p.m, p.n, p.k, DType::kBF16, DType::kBF16, false, context_.stream);
    });
    // The next one finds random numbers again.
    gpu::fill_dummy(memory_.data(), DType::kBF16, static_cast<int64_t>(product_bytes(p) / 2), 1, 0, context_.stream);
    return rate;
  }

  const GpuScope& scope_;
  gpu::Context context_;
  size_t bytes_ = 0;
  gpu::DeviceMemory memory_, sums_;
};

}  // namespace

DeviceLimits measure_gpu_limits(const GpuScope& scope) { return Measurement(scope).run(); }

}  // namespace quire
