#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

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

// YaRN: dimensions that turn more than beta_fast times over the original context are kept, those that turn less than
// beta_slow times are stretched, and between them a ramp over the dimensions blends.
class YarnRamp {
 public:
  YarnRamp(const RopeConfig& rope, int64_t head_dim) {
    const auto dims = static_cast<double>(head_dim), context = static_cast<double>(rope.original_max_position);
    const auto dimension_of = [&](double turns) {
      return dims * std::log(context / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(rope.theta));
    };
    low_ = dimension_of(rope.beta_fast);
    high_ = dimension_of(rope.beta_slow);
    if (rope.truncate) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(0.0, low_);
    high_ = std::min(dims - 1.0, high_);
    if (high_ <= low_) high_ = low_ + 1e-3;
  }
  double frequency(double frequency, size_t i, double factor) const {
    const double stretched = std::clamp((static_cast<double>(i) - low_) / (high_ - low_), 0.0, 1.0);
    return frequency * (1.0 - stretched) + frequency / factor * stretched;
  }

 private:
  double low_, high_;
};

}  // namespace

double yarn_magnitude(double factor, double weight) {
  return factor > 1.0 ? 0.1 * weight * std::log(factor) + 1.0 : 1.0;
}

double rope_attention_factor(const RopeConfig& rope) {
  if (rope.type != "yarn") return 1.0;
  return rope.attention_factor.value_or(yarn_magnitude(rope.factor));
}

std::vector<float> rope_inv_freq(const RopeConfig& rope, int64_t head_dim) {
  std::vector<float> inv_freq(static_cast<size_t>(head_dim / 2));
  const std::optional<YarnRamp> yarn =
      rope.type == "yarn" ? std::optional<YarnRamp>(std::in_place, rope, head_dim) : std::nullopt;
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (rope.type == "linear") {
      frequency /= rope.factor;
    } else if (rope.type == "llama3") {
      frequency = llama3_frequency(frequency, rope);
    } else if (yarn) {
      frequency = yarn->frequency(frequency, i, rope.factor);
    } else if (rope.type != "default") {
      throw invalid_argument(
          "rope scaling of type " + rope.type + " is not supported; there are default, linear, llama3 and yarn",
          "rope_type");
    }
    if (!rope.freq_factors.empty()) frequency /= static_cast<double>(rope.freq_factors.at(i));
    inv_freq[i] = static_cast<float>(frequency);
  }
  return inv_freq;
}

}  // namespace quire
