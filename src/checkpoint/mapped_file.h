#pragma once
// A file mapped read-only and private.
#include <cstddef>
#include <span>
#include <string>

namespace quire {

class MappedFile {
 public:
  explicit MappedFile(std::string path);  // throws Error naming the path and the system's reason
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  void drop_pages(const std::byte* begin, size_t size) const;  // they come back from the file if read again

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A whole small text file; throws Error if it can't be read or is larger than `limit` bytes.
std::string read_text_file(const std::string& path, size_t limit);

}  // namespace quire
