#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

// An open file that closes itself.
struct Descriptor {
  explicit Descriptor(const std::string& path) : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd < 0) throw not_found(fmt::format("can't open {}: {}", path, std::strerror(errno)), "model");
  }
  ~Descriptor() { close(fd); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  size_t regular_size(const std::string& path) const {
    struct stat info {};
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
      throw invalid_argument(fmt::format("{} is not a regular file", path), "model");
    return static_cast<size_t>(info.st_size);
  }
  int fd;
};

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file(path_);
  size_ = file.regular_size(path_);
  if (size_ == 0) return;
  void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED)
    throw Error(ErrorKind::kResourceExhausted, fmt::format("can't map {}: {}", path_, std::strerror(errno)), "model");
  data_ = static_cast<const std::byte*>(data);
  madvise(data, size_, MADV_WILLNEED);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop_pages(const std::byte* begin, size_t size) const {
  // Only whole pages: their neighbours may still be wanted.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto first = static_cast<size_t>(begin - data_);
  const size_t from = (first + page - 1) / page * page, to = (first + size) / page * page;
  if (from < to) madvise(const_cast<std::byte*>(data_) + from, to - from, MADV_DONTNEED);
}

std::string read_text_file(const std::string& path, size_t limit) {
  const Descriptor file(path);
  const size_t size = file.regular_size(path);
  if (size > limit)
    throw invalid_argument(fmt::format("{} has {} bytes; at most {} are read", path, size, limit), "model");
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = read(file.fd, text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw not_found(fmt::format("can't read {}: {}", path, std::strerror(errno)), "model");
    if (n == 0) break;  // cut short meanwhile
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

}  // namespace quire
