#include <cmath>
#include <numbers>

#include "base/error.h"
#include "checkpoint/model_config.h"

namespace quire {
namespace {

// Llama 3.1: wavelengths longer than the original context are stretched by `factor`, short ones are kept, those between
// are blended.
double llama3_frequency(double frequency, const RopeConfig& rope) {
  const double wavelength = 2.0 * std::numbers::pi / frequency,
               context = static_cast<double>(rope.original_max_position);
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_inv_freq(const RopeConfig& rope, int64_t head_dim) {
  std::vector<float> inv_freq(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (rope.type == "linear") {
      frequency /= rope.factor;
    } else if (rope.type == "llama3") {
      frequency = llama3_frequency(frequency, rope);
    } else if (rope.type != "default") {
      throw invalid_argument(
          "rope scaling of type " + rope.type + " is not supported; there are default, linear and llama3", "rope_type");
    }
    if (!rope.freq_factors.empty()) frequency /= static_cast<double>(rope.freq_factors.at(i));
    inv_freq[i] = static_cast<float>(frequency);
  }
  return inv_freq;
}

}  // namespace quire
