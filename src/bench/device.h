#pragma once
// `quire bench device`: what this machine can do at most, the yardstick of the other benchmarks.
#include <cstdint>
#include <string>

#include "base/option_table.h"
#include "base/thread_pool.h"

namespace quire {

// 1e9 bytes or operations a second. Noise only ever slows a loop down: `best` is the limit, `median` says how quiet the
// machine was.
struct MeasuredRate {
  double best = 0, median = 0;
};

struct DeviceLimits {
  std::string isa;                       // instruction set of the kernels, as in base/cpu_isa.h
  std::string int8_instructions;         // what the int8 rate is made of
  int threads = 0;                       // all rates are of that many threads together
  int64_t l3_bytes = 0;                  // all third-level caches of this process's processors; 0 = not known
  int64_t memory_bytes = 0;              // read to measure the memory, well beyond the caches
  int64_t cache_bytes = 0;               // read to measure L3, beyond the caches in front of it; 0 = not measured
  MeasuredRate read_memory, read_cache;  // bytes read
  MeasuredRate copy_memory;              // bytes read and bytes written
  MeasuredRate fma_f32, dot_int8;        // a multiply-add is two operations
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
  int32_t threads = 0;  // 0 = all that this process may use
  std::string output_json;
};
void add_device_benchmark_options(OptionTable& table, DeviceBenchmarkOptions& options);

// Measures, prints to stdout and writes the JSON file.
void run_device_benchmark(const DeviceBenchmarkOptions& options);

std::string device_text(const DeviceLimits& limits);
std::string device_json(const DeviceLimits& limits);  // four spaces of indent

// --threads of benchmarks without a model, with the help text and environment variable that it has elsewhere.
void add_threads_option(OptionTable& table, int32_t& threads);
int thread_count(int32_t threads);  // 0 = default_thread_count()

}  // namespace quire
