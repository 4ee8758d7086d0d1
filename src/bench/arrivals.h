#pragma once
// When the requests of a benchmark go out.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct Arrivals {
  double request_rate = 0;  // per second; infinite: all at once
  double burstiness = 1;    // shape of the gamma distribution of intervals: 1 a Poisson process, infinite a fixed beat
  std::string ramp_up;      // "linear", "exponential", or empty; then the rate goes from start to end
  double ramp_up_start = 0, ramp_up_end = 0;
};

// Seconds from the start for each of `count` requests, ascending. Without a ramp the last one is at count / rate
// exactly, so that two seeds differ in order, not in load.
std::vector<double> arrival_times(const Arrivals& arrivals, size_t count, uint64_t seed);

}  // namespace quire
