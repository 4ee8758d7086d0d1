#pragma once
// A bar on stderr while a model loads; silent unless stderr is a terminal.
#include <functional>
#include <string>

namespace quire {

// Takes fractions in [0, 1]; ends the line at 1.
std::function<void(double)> make_progress_bar(const std::string& label);

}  // namespace quire
