#pragma once
// `quire bench device`: what this machine or its GPU can do at most, the yardstick of the other benchmarks.
#include <cstdint>
#include <string>
#include <vector>

#include "base/option_table.h"
#include "base/thread_pool.h"

namespace quire {

// 1e9 bytes or operations a second. Noise only ever slows a loop down: `best` is the limit, `median` says how quiet the
// machine was.
struct MeasuredRate {
  double best = 0, median = 0;
};

// A product [m, k] [k, n] in bf16 with sums in f32.
struct MatrixRate {
  int64_t m = 0, n = 0, k = 0;
  MeasuredRate rate = {};
};

struct DeviceLimits {
  std::string card;               // the GPU's name; empty: this is the CPU
  std::string architecture;       // GPU, as in gpu/device.h
  int multiprocessors = 0;        // GPU
  int64_t card_bytes = 0;         // GPU: all of its memory
  std::string isa;                // CPU: instruction set of the kernels, as in base/cpu_isa.h
  std::string int8_instructions;  // CPU: what the int8 rate is made of
  int threads = 0;                // CPU: all rates are of that many threads together
  int64_t last_cache_bytes = 0;   // all L3 caches of this process's processors, the GPU's L2; 0 = not known
  int64_t memory_bytes = 0;       // read to measure the memory, well beyond the caches
  int64_t cache_bytes = 0;        // read to measure the last cache, beyond those in front of it; 0 = not measured
  MeasuredRate read_memory, read_cache;  // bytes read
  MeasuredRate copy_memory;              // bytes read and bytes written
  MeasuredRate fma_f32, dot_int8;        // a multiply-add is two operations; int8: CPU
  std::vector<MatrixRate> products;      // GPU

  bool gpu() const { return !card.empty(); }
  const char* last_cache() const { return gpu() ? "L2" : "L3"; }
  double best_product() const;  // of all shapes; 0 if none was measured
};

// What to measure beside the rates of reading and of f32; what is not measured stays 0.
struct DeviceScope {
  bool copy = true, int8 = true;
  int64_t most_bytes = int64_t{4} << 30;  // to measure the memory with
};

// Takes a few seconds and memory_bytes of memory: four times the L3 caches, within most_bytes and a quarter of what is
// free. Throws Error(kResourceExhausted) if that can't be had.
DeviceLimits measure_device_limits(ThreadPool& pool, const DeviceScope& scope = {});

struct DeviceBenchmarkOptions {
  std::string device = "auto";  // gpu::device_names()
  int32_t threads = 0;          // 0 = all that this process may use
  std::string output_json;
};
void add_device_benchmark_options(OptionTable& table, DeviceBenchmarkOptions& options);

// Measures, prints to stdout and writes the JSON file.
void run_device_benchmark(const DeviceBenchmarkOptions& options);

std::string device_text(const DeviceLimits& limits);
std::string device_json(const DeviceLimits& limits);  // four spaces of indent

// --device and --threads of benchmarks without a model, with the help texts and environment variables that they
// have elsewhere.
void add_device_option(OptionTable& table, std::string& device);
void add_threads_option(OptionTable& table, int32_t& threads);
bool wants_gpu(const std::string& device);  // auto: if there is one
int thread_count(int32_t threads);          // 0 = default_thread_count()

}  // namespace quire
