#pragma once
// What `quire bench latency --breakdown` says: the time of each op in steps of prefill and of decode, beside what the
// machine could do.
#include <cstdint>
#include <string>
#include <vector>

#include "bench/device.h"
#include "bench/op_times.h"

namespace quire {

struct BreakdownOp {
  std::string name;
  OpTotals totals;  // of all measured iterations
  // Which rate bounds it, and how near it comes to that: the seconds it can't be done without, over those it took. ""
  // where there is nothing to hold it against.
  std::string limit;
  double limit_share = 0;
  double gigabytes_per_second() const { return rate(totals.bytes); }
  double gigaoperations_per_second() const { return rate(totals.operations); }

 private:
  double rate(double work) const { return totals.seconds > 0 ? work / totals.seconds / 1e9 : 0; }
};

struct BreakdownPhase {
  int64_t steps = 0, rows = 0;
  double seconds = 0;
  std::vector<BreakdownOp> ops;  // that took time, in the order in which they come
  bool from_cache = false;       // all that a step reads fits the last cache, whose rate it is held against then
  double products_share = 0;     // of the linear layers: seconds at the rate of their arithmetic, over those taken
  double memory_share = 0;       // of the whole phase: seconds to read its bytes from memory, over those taken
  double overhead_seconds = 0;   // scheduler, hand-over, staging, plan and sampling
};

struct Breakdown {
  int64_t iterations = 0;
  double seconds = 0;  // of all iterations, on the clock of those who wait for the tokens
  BreakdownPhase prefill, decode;
  DeviceLimits limits;
  double outside_seconds() const { return seconds - prefill.seconds - decode.seconds; }
};

// `seconds`: of all iterations together.
Breakdown make_breakdown(const OpTimes& times, const DeviceLimits& limits, int64_t iterations, double seconds);

std::string breakdown_text(const Breakdown& breakdown);  // two tables
// An object with the sums of all iterations; four spaces of indent.
std::string breakdown_json(const Breakdown& breakdown);

}  // namespace quire
