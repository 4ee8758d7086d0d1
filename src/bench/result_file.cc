#include "bench/result_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace quire {

ResultFile::ResultFile(std::string path, std::string flag, Mode mode)
    : path_(std::move(path)), flag_(std::move(flag)), mode_(mode) {
  if (path_.empty()) return;
  existed_ = access(path_.c_str(), F_OK) == 0;
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    const int error = errno;
    throw invalid_argument(fmt::format("--{} {}: cannot be written ({})", flag_, path_, std::strerror(error)), flag_);
  }
}

ResultFile::~ResultFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!path_.empty() && !existed_ && !written_) unlink(path_.c_str());
}

void ResultFile::fail(int error) const {
  throw Error(ErrorKind::kInternal, fmt::format("--{} {}: writing failed ({})", flag_, path_, std::strerror(error)),
              flag_);
}

void ResultFile::write(const std::string& text) {
  if (path_.empty()) return;
  struct stat before {};
  if (fstat(descriptor_, &before) != 0) fail(errno);
  const std::string all = (mode_ == Mode::kAppend && before.st_size > 0 ? "\n" : "") + text;
  // A pipe or a device has no length to cut.
  if (mode_ == Mode::kReplace && S_ISREG(before.st_mode) && ftruncate(descriptor_, 0) != 0) fail(errno);
  for (size_t done = 0; done < all.size();) {
    const ssize_t n = ::write(descriptor_, all.data() + done, all.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errno);
    done += static_cast<size_t>(n);
  }
  const int descriptor = std::exchange(descriptor_, -1);
  if (close(descriptor) != 0) fail(errno);  // some file systems only say here that they are full
  written_ = true;
}

}  // namespace quire
