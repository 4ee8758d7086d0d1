#pragma once
// The file of a benchmark's results: opened before hours of measuring, and taken away again if nothing gets written to
// it.
#include <string>

namespace quire {

class ResultFile {
 public:
  enum class Mode { kReplace, kAppend };

  // "" = no file. `flag` is named in errors. Throws Error(kInvalidArgument) if it can't be written.
  explicit ResultFile(std::string path, std::string flag = "output-json", Mode mode = Mode::kReplace);
  ~ResultFile();
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  // Instead of what was in it, or as a line after that. Throws Error(kInternal) with the system's reason if it fails.
  void write(const std::string& text);

 private:
  [[noreturn]] void fail(int error) const;
  std::string path_, flag_;
  Mode mode_;
  int descriptor_ = -1;
  bool existed_ = false, written_ = false;
};

}  // namespace quire
