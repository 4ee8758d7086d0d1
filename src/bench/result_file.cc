#include "bench/result_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace quire {

ResultFile::ResultFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code ignored;
  existed_ = std::filesystem::exists(path_, ignored);
  file_.open(path_, std::ios::app);
  if (!file_) throw invalid_argument(fmt::format("--output-json {}: cannot be written", path_), "output-json");
}

ResultFile::~ResultFile() {
  std::error_code ignored;
  if (!path_.empty() && !existed_ && !written_) std::filesystem::remove(path_, ignored);
}

void ResultFile::write(const std::string& text) {
  if (path_.empty()) return;
  file_.close();
  file_.open(path_, std::ios::trunc);
  file_ << text << std::flush;
  if (!file_) throw Error(ErrorKind::kInternal, fmt::format("--output-json {}: writing failed", path_), "output-json");
  written_ = true;
}

}  // namespace quire
