#pragma once
// Numbers as the Python tools of the field compute and print them, so that their readers can read ours.
#include <span>
#include <string>

namespace quire {

// repr(float): the shortest decimal that reads back as the same double; "1.0", "1e-05", "inf", "nan".
std::string python_repr(double value);

// numpy.percentile(values, percent) with its default, linear interpolation. `sorted` is ascending and not empty;
// percent in [0, 100].
double percentile(std::span<const double> sorted, double percent);

}  // namespace quire
