#pragma once
// The file of --output-json: opened before hours of measuring, and taken away again if nothing gets written to it.
#include <fstream>
#include <string>

namespace quire {

class ResultFile {
 public:
  explicit ResultFile(std::string path);  // "" = no file; Error(kInvalidArgument) if it can't be written
  ~ResultFile();
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  void write(const std::string& text);  // instead of what was in it; Error(kInternal) if writing fails

 private:
  std::string path_;
  std::ofstream file_;
  bool existed_ = false, written_ = false;
};

}  // namespace quire
