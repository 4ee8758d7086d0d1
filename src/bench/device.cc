#include "bench/device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "base/numa.h"
#include "bench/cache_sizes.h"
#include "bench/device_kernels.h"
#include "bench/gpu_limits.h"
#include "bench/result_file.h"
#include "bench/timing.h"
#include "gpu/device.h"

namespace quire {
namespace {

constexpr int kRuns = 7;
constexpr double kRunSeconds = 0.03;  // of the loops that are repeated until a run is long enough to be timed
constexpr double kMostRepeats = 1e6;
constexpr int64_t kMiB = 1 << 20;
// Ranges of workers begin at multiples of this.
constexpr int64_t kChunk = 64 * 1024;

// Memory of large pages, each touched by the worker that will use it: a limit should not depend on the TLB or on where
// the kernel happened to put things.
class Pages {
 public:
  Pages(int64_t bytes, ThreadPool& pool) : reserved_(static_cast<size_t>(bytes) + kLargePage) {
    memory_ = mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) {
      throw Error(ErrorKind::kResourceExhausted, fmt::format("can't reserve {} bytes to measure with", reserved_));
    }
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    data_ = static_cast<std::byte*>(memory_) + ((address + kLargePage - 1) / kLargePage * kLargePage - address);
    madvise(memory_, reserved_, MADV_HUGEPAGE);  // only a wish
    pool.parallel_for(bytes / kChunk, [&](int64_t begin, int64_t end, int) {
      std::memset(data_ + begin * kChunk, 1, static_cast<size_t>((end - begin) * kChunk));
    });
  }
  ~Pages() { munmap(memory_, reserved_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }

 private:
  static constexpr size_t kLargePage = 2 * kMiB;
  size_t reserved_;
  void* memory_ = nullptr;
  std::byte* data_ = nullptr;
};

// Results of the loops; a compiler must not find that nobody wants them.
template <class T>
void keep(T value) {
  asm volatile("" : : "g"(value) : "memory");
}

// amount: what one call of fn does.
template <class Fn>
MeasuredRate rate_of(double amount, Fn&& fn) {
  const double once = std::max(seconds_of(fn), 1e-7);  // also the warm-up
  const auto repeats = static_cast<int64_t>(std::clamp(std::ceil(kRunSeconds / once), 1.0, kMostRepeats));
  std::vector<double> rates;
  for (int run = 0; run < kRuns; ++run) {
    const double seconds = seconds_of([&] {
      for (int64_t i = 0; i < repeats; ++i) fn();
    });
    rates.push_back(amount * static_cast<double>(repeats) / std::max(seconds, 1e-9) * 1e-9);
  }
  return {*std::max_element(rates.begin(), rates.end()), median(rates)};
}

MeasuredRate faster(const MeasuredRate& a, const MeasuredRate& b) { return a.best > b.best ? a : b; }

MeasuredRate measure_read(const std::byte* data, int64_t bytes, ThreadPool& pool) {
  const DeviceKernels& kernels = device_kernels();
  return rate_of(static_cast<double>(bytes), [&] {
    pool.parallel_for(bytes / kChunk, [&](int64_t begin, int64_t end, int) {
      keep(kernels.read(data + begin * kChunk, static_cast<size_t>((end - begin) * kChunk)));
    });
  });
}

MeasuredRate measure_copy(std::byte* data, int64_t bytes, ThreadPool& pool) {
  const DeviceKernels& kernels = device_kernels();
  const int64_t half = bytes / 2;
  const auto with = [&](auto copy) {
    return rate_of(static_cast<double>(2 * half), [&] {
      pool.parallel_for(half / kChunk, [&](int64_t begin, int64_t end, int) {
        copy(data + begin * kChunk, data + half + begin * kChunk, static_cast<size_t>((end - begin) * kChunk));
      });
    });
  };
  return faster(with(kernels.copy), with(kernels.copy_streaming));
}

template <class Loop>
MeasuredRate measure_operations(Loop loop, double operations, ThreadPool& pool) {
  constexpr int64_t kSteps = 1 << 16;
  return rate_of(operations * kSteps * pool.workers(), [&] { pool.run([&](int) { keep(loop(kSteps)); }); });
}

int64_t whole_chunks(double bytes, int64_t threads) {
  const int64_t unit = kChunk * threads * 2;  // two: a copy splits it in halves
  return std::max<int64_t>(static_cast<int64_t>(bytes) / unit, 1) * unit;
}

int64_t memory_set_bytes(const CacheSizes& caches, int64_t threads, int64_t most) {
  constexpr int64_t kLeast = 256 * kMiB, kUnknown = 1024 * kMiB;
  const int64_t wanted = caches.l3_total == 0 ? kUnknown : std::max(4 * caches.l3_total, kLeast);
  const auto available = static_cast<int64_t>(available_memory_bytes() / 4);
  return whole_chunks(static_cast<double>(std::min({wanted, most, available})), threads);
}

// Between a thread's second-level cache and its share of the third level, in the middle of their logarithms.
int64_t cache_set_bytes(const CacheSizes& caches, int64_t threads) {
  const int64_t share = std::min(caches.l3, caches.l3_total / threads);
  if (share <= 2 * caches.l2) return 0;
  const double each = std::sqrt(static_cast<double>(std::max(caches.l2, kMiB)) * static_cast<double>(share));
  return whole_chunks(each * static_cast<double>(threads), threads);
}

nlohmann::ordered_json rate_json(const MeasuredRate& rate) {
  if (rate.best == 0) return nullptr;  // not measured
  return {{"best", rate.best}, {"median", rate.median}};
}

}  // namespace

DeviceLimits measure_device_limits(ThreadPool& pool, const DeviceScope& scope) {
  const CacheSizes caches = cache_sizes();
  const DeviceKernels& kernels = device_kernels();
  DeviceLimits limits;
  limits.isa = cpu_isa_name(cpu_isa());
  limits.int8_instructions = kernels.dot_int8_instructions;
  limits.threads = pool.workers();
  limits.last_cache_bytes = caches.l3_total;
  limits.memory_bytes = memory_set_bytes(caches, limits.threads, scope.most_bytes);
  limits.cache_bytes = std::min(cache_set_bytes(caches, limits.threads), limits.memory_bytes);
  {
    const Pages pages(limits.memory_bytes, pool);
    limits.read_memory = measure_read(pages.data(), limits.memory_bytes, pool);
    if (scope.copy) limits.copy_memory = measure_copy(pages.data(), limits.memory_bytes, pool);
    if (limits.cache_bytes > 0) limits.read_cache = measure_read(pages.data(), limits.cache_bytes, pool);
  }
  limits.fma_f32 = measure_operations(kernels.fma_f32, kernels.fma_f32_operations, pool);
  if (scope.int8) limits.dot_int8 = measure_operations(kernels.dot_int8, kernels.dot_int8_operations, pool);
  return limits;
}

double DeviceLimits::best_product() const {
  double best = 0;
  for (const MatrixRate& product : products) best = std::max(best, product.rate.best);
  return best;
}

std::string device_text(const DeviceLimits& limits) {
  const auto mib = [](int64_t bytes) { return bytes / kMiB; };
  const std::string what =
      limits.gpu()
          ? fmt::format("{}, {}, {} multiprocessors, {} MiB of memory", limits.card, limits.architecture,
                        limits.multiprocessors, mib(limits.card_bytes))
          : fmt::format("instruction set {}, {} thread{}", limits.isa, limits.threads, limits.threads == 1 ? "" : "s");
  std::string out = fmt::format("{}; best of {} runs (median)\n", what, kRuns);
  const auto line = [&](const std::string& name, const MeasuredRate& rate, const char* unit, double scale = 1) {
    if (rate.best == 0) return;  // not measured
    out += fmt::format("{:<52} {:>9.1f} ({:.1f}) {}\n", name, rate.best * scale, rate.median * scale, unit);
  };
  line(fmt::format("read, {} MiB", mib(limits.memory_bytes)), limits.read_memory, "GB/s");
  line(fmt::format("read inside {}, {} of {} MiB", limits.last_cache(), mib(limits.cache_bytes),
                   mib(limits.last_cache_bytes)),
       limits.read_cache, "GB/s");
  line(fmt::format("copy, read and written, {} MiB", mib(limits.memory_bytes)), limits.copy_memory, "GB/s");
  constexpr double kTera = 1e-3;
  for (const MatrixRate& product : limits.products) {
    line(fmt::format("bf16 product {} x {} x {}", product.m, product.n, product.k), product.rate, "TFLOP/s", kTera);
  }
  if (limits.gpu()) {
    line("f32 multiply-add", limits.fma_f32, "TFLOP/s", kTera);
  } else {
    line("f32 multiply-add", limits.fma_f32, "GFLOP/s");
  }
  line(fmt::format("int8 multiply-add, {}", limits.int8_instructions), limits.dot_int8, "GOP/s");
  return out;
}

std::string device_json(const DeviceLimits& limits) {
  nlohmann::ordered_json json;
  if (limits.gpu()) {
    json = {{"card", limits.card},
            {"architecture", limits.architecture},
            {"multiprocessors", limits.multiprocessors},
            {"card_bytes", limits.card_bytes},
            {"l2_bytes", limits.last_cache_bytes}};
  } else {
    json = {{"isa", limits.isa}, {"threads", limits.threads}, {"l3_bytes", limits.last_cache_bytes}};
  }
  json["memory_bytes"] = limits.memory_bytes;
  json["cache_bytes"] = limits.cache_bytes;
  json["read_memory_gb_s"] = rate_json(limits.read_memory);
  json["read_cache_gb_s"] = rate_json(limits.read_cache);
  json["copy_memory_gb_s"] = rate_json(limits.copy_memory);
  json["fma_f32_gflop_s"] = rate_json(limits.fma_f32);
  if (!limits.gpu()) {
    json["dot_int8_gop_s"] = rate_json(limits.dot_int8);
    json["dot_int8_instructions"] = limits.int8_instructions;
    return json.dump(4);
  }
  json["products_bf16"] = nlohmann::ordered_json::array();
  for (const MatrixRate& product : limits.products) {
    json["products_bf16"].push_back(
        {{"m", product.m}, {"n", product.n}, {"k", product.k}, {"gflop_s", rate_json(product.rate)}});
  }
  return json.dump(4);
}

void add_device_option(OptionTable& table, std::string& device) {
  table.add("device", device, "what to measure; auto: the GPU if there is one").choices(gpu::device_names());
}

bool wants_gpu(const std::string& device) {
  return gpu::insists_on_device(device) || (device == "auto" && gpu::why_no_device().empty());
}

void add_threads_option(OptionTable& table, int32_t& threads) {
  table.add("threads", threads, "compute threads; auto: the processors this process may use")
      .short_name("t")
      .word("auto", 0)
      .range(1, 512)
      .env("QUIRE_THREADS");
}

int thread_count(int32_t threads) { return threads > 0 ? threads : default_thread_count(); }

void add_device_benchmark_options(OptionTable& table, DeviceBenchmarkOptions& options) {
  table.group("Device benchmark");
  add_device_option(table, options.device);
  add_threads_option(table, options.threads);
  table.add("output-json", options.output_json, "file for the results").value_name("FILE");
}

void run_device_benchmark(const DeviceBenchmarkOptions& options) {
  ResultFile file(options.output_json);
  const DeviceLimits limits = [&] {
    if (wants_gpu(options.device)) return measure_gpu_limits();
    ThreadPool pool(thread_count(options.threads));
    return measure_device_limits(pool);
  }();
  std::fputs(device_text(limits).c_str(), stdout);
  std::fflush(stdout);
  file.write(device_json(limits));
}

}  // namespace quire
