#include "bench/python_format.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <iterator>

namespace quire {

std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[40];
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), value, std::chars_format::scientific);
  std::string shortest(text, error == std::errc{} ? end : text);
  const size_t e = shortest.find('e');
  const int exponent = std::atoi(shortest.c_str() + e + 1);
  constexpr int kFirstExponent = -4, kLastExponent = 15;  // outside, repr() changes to the scientific form
  if (exponent < kFirstExponent || exponent > kLastExponent) return shortest;

  const bool negative = shortest[0] == '-';
  std::string digits = shortest.substr(negative ? 1 : 0, e - (negative ? 1 : 0));
  if (digits.size() > 1) digits.erase(1, 1);  // the point
  std::string out = negative ? "-" : "";
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  const std::string fraction = digits.substr(whole);
  return out + digits.substr(0, whole) + "." + (fraction.empty() ? "0" : fraction);
}

double percentile(std::span<const double> sorted, double percent) {
  const double at = percent / 100.0 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  if (below + 1 >= sorted.size()) return sorted.back();
  // As numpy: from the nearer end, so that the result never leaves the interval.
  const double t = at - static_cast<double>(below), difference = sorted[below + 1] - sorted[below];
  return t < 0.5 ? sorted[below] + difference * t : sorted[below + 1] - difference * (1 - t);
}

}  // namespace quire
