// To be preloaded: malloc and its kin fail once, at the k-th call after a controller has asked for it. The controller
// writes k into the file that QUIRE_FAILING_ALLOCATOR names (int64: calls still to go, 0 = off; int64: failures so
// far).
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace {

struct Control {
  std::atomic<int64_t> countdown, failures;
};

Control* map_control() {
  const char* const file = std::getenv("QUIRE_FAILING_ALLOCATOR");
  if (file == nullptr) return nullptr;
  const int descriptor = open(file, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  void* const memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  return memory == MAP_FAILED ? nullptr : static_cast<Control*>(memory);
}

std::atomic<Control*> control{nullptr};

__attribute__((constructor)) void start() { control = map_control(); }

bool fails_now() {
  Control* const c = control.load(std::memory_order_relaxed);
  if (c == nullptr || c->countdown.load(std::memory_order_relaxed) <= 0) return false;
  if (c->countdown.fetch_sub(1) != 1) return false;
  c->failures.fetch_add(1);
  errno = ENOMEM;
  return true;
}

}  // namespace

// glibc's own names of the functions that are replaced here.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) { return fails_now() ? nullptr : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) { return fails_now() ? nullptr : __libc_calloc(count, bytes); }
void* realloc(void* old, size_t bytes) { return fails_now() ? nullptr : __libc_realloc(old, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) {
  return fails_now() ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, size_t alignment, size_t bytes) {
  *result = fails_now() ? nullptr : __libc_memalign(alignment, bytes);
  return *result == nullptr ? ENOMEM : 0;
}
}
