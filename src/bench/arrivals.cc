#include "bench/arrivals.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace quire {
namespace {

double rate_at(const Arrivals& arrivals, size_t index, size_t count) {
  if (arrivals.ramp_up.empty()) return arrivals.request_rate;
  const double progress = static_cast<double>(index) / static_cast<double>(std::max<size_t>(count - 1, 1));
  if (arrivals.ramp_up == "linear")
    return arrivals.ramp_up_start + (arrivals.ramp_up_end - arrivals.ramp_up_start) * progress;
  return arrivals.ramp_up_start * std::pow(arrivals.ramp_up_end / arrivals.ramp_up_start, progress);
}

}  // namespace

std::vector<double> arrival_times(const Arrivals& arrivals, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> times(count);
  double at = 0;
  for (size_t i = 0; i < count; ++i) {
    const double rate = rate_at(arrivals, i, count);
    if (std::isinf(rate)) continue;
    if (std::isinf(arrivals.burstiness)) {
      at += 1 / rate;
    } else {
      at += std::gamma_distribution<double>(arrivals.burstiness, 1 / (rate * arrivals.burstiness))(random);
    }
    times[i] = at;
  }
  if (arrivals.ramp_up.empty() && at > 0) {
    const double factor = static_cast<double>(count) / arrivals.request_rate / at;
    for (double& time : times) time *= factor;
  }
  return times;
}

}  // namespace quire
