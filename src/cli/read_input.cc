#include "cli/read_input.h"

#include <fmt/format.h>

#include <array>
#include <iostream>

#include "base/error.h"
#include "checkpoint/mapped_file.h"

namespace quire {

std::string read_input(const std::string& path, size_t most) {
  if (path != "-") return read_text_file(path, most);
  std::string text;
  std::array<char, 64 << 10> part;
  while (std::cin.read(part.data(), part.size()) || std::cin.gcount() > 0) {
    text.append(part.data(), static_cast<size_t>(std::cin.gcount()));
    if (text.size() > most) throw invalid_argument(fmt::format("the input is longer than {} bytes", most));
  }
  return text;
}

}  // namespace quire
