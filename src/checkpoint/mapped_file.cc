#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
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

// Where a file is cut while it is mapped, reading what is gone raises SIGBUS. There is nothing to read instead, so the
// process ends, but with a line that names the file. The table is the one thing that a signal handler can reach.
struct MappedRegion {
  std::atomic<bool> taken{false};
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<size_t> size{0};
  std::atomic<const char*> path{nullptr};
};
std::array<MappedRegion, 1024> mapped_regions;  // a file that finds no room here is not named

void say(const char* text) { [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text)); }

void on_bus_error(int, siginfo_t* info, void*) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  for (const MappedRegion& region : mapped_regions) {
    const std::byte* const begin = region.begin.load();
    if (begin == nullptr || address < begin || address >= begin + region.size.load()) continue;
    say("quire: error: ");
    say(region.path.load());
    say(" was cut while it was being read\n");
    _exit(1);
  }
  std::signal(SIGBUS, SIG_DFL);  // not ours: it comes again, and ends the process as it would have
}

void note_mapping(const std::byte* begin, size_t size, const char* path) {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  if (!installed) return;
  for (MappedRegion& region : mapped_regions) {
    if (region.taken.exchange(true)) continue;
    region.size = size;
    region.path = path;
    region.begin = begin;
    return;
  }
}

void forget_mapping(const std::byte* begin) {
  for (MappedRegion& region : mapped_regions) {
    if (region.begin.load() != begin) continue;
    region.begin = nullptr;
    region.taken = false;
  }
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file(path_);
  size_ = file.regular_size(path_);
  if (size_ == 0) return;
  void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED)
    throw Error(ErrorKind::kResourceExhausted, fmt::format("can't map {}: {}", path_, std::strerror(errno)), "model");
  data_ = static_cast<const std::byte*>(data);
  note_mapping(data_, size_, path_.c_str());
  madvise(data, size_, MADV_WILLNEED);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(data_);
  munmap(const_cast<std::byte*>(data_), size_);
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
