#include "tensor/workspace.h"

#include <sys/mman.h>

#include <new>
#include <stdexcept>

namespace quire {

Workspace::Workspace(size_t bytes) : owns_(bytes > 0), capacity_(bytes) {
  if (bytes == 0) return;
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(base);
}

Workspace::~Workspace() {
  if (owns_) munmap(base_, capacity_);
}

void* Workspace::take_bytes(size_t bytes) {
  const size_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  if (begin > capacity_ || bytes > capacity_ - begin) throw std::logic_error("workspace is too small for this step");
  used_ = begin + bytes;
  return base_ + begin;
}

}  // namespace quire
