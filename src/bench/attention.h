#pragma once
// `quire bench attention`: time of one layer's attention over a step, its rates, and their share of what the machine
// can do, measured in the same run.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "base/thread_pool.h"
#include "bench/attention_check.h"
#include "bench/attention_rows.h"
#include "bench/device.h"
#include "bench/step_batch.h"

namespace quire {

struct AttentionResult {
  AttentionRow row;
  std::string backend;  // its name; row.backend may be "auto"
  AttentionWork work;
  int32_t layers = 0;
  std::vector<double> seconds;  // of run() for one layer, in order, or the mean of a graph of runs; at least one
  double plan_seconds = 0;      // median of plan(), which is called once for all layers
  std::optional<AttentionCheck> check;
};

// Which limit bounds a row, and how near it comes: the time that the machine needs at least, over the median time. Keys
// and values come from memory if those of all layers exceed the last cache. On a GPU products of 16-bit types are those
// of matrices.
struct LimitShare {
  enum class Bound : uint8_t { kReadMemory, kReadCache, kFma, kProduct } bound = Bound::kReadMemory;
  double share = 0;
};
LimitShare limit_share(const AttentionResult& result, const DeviceLimits& limits);

// Where attention is measured.
class AttentionDevice {
 public:
  virtual ~AttentionDevice() = default;
  virtual const char* automatic_kv_dtype() const = 0;  // a name as of --kv-cache-dtype
  virtual std::unique_ptr<AttentionBackend> make_backend(const AttentionRow& row) = 0;
  virtual DeviceLimits measure_limits() = 0;
  virtual AttentionResult measure(const AttentionRow& row, const AttentionBackend& backend,
                                  const AttentionBenchmarkOptions& options, int64_t last_cache_bytes) = 0;
};
std::unique_ptr<AttentionDevice> make_cpu_attention_device(int32_t threads);
// Throws Error(kUnavailable) if there is no GPU.
std::unique_ptr<AttentionDevice> make_gpu_attention_device();

AttentionResult measure_attention(const AttentionRow& row, const AttentionBackend& backend,
                                  const AttentionBenchmarkOptions& options, int64_t last_cache_bytes, ThreadPool& pool);

// Measures all rows, prints them to stdout as they are done and writes the JSON file. False if a check failed. Throws
// Error(kInvalidArgument) before any measurement if a row or the file is not possible.
bool run_attention_benchmark(const AttentionBenchmarkOptions& options);

bool checks_passed(const std::vector<AttentionResult>& results);  // those that were made
std::string attention_header(const AttentionBenchmarkOptions& options);
std::string attention_text(const AttentionResult& result, const DeviceLimits& limits);  // one line
std::string attention_json(const std::vector<AttentionResult>& results, const DeviceLimits& limits);

}  // namespace quire
