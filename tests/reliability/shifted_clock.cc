// To be preloaded: the wall clock is off by as many seconds as the file that QUIRE_SHIFTED_CLOCK names says (int64).
// The monotonic clocks are left alone.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

std::atomic<int64_t>* map_shift() {
  const char* const file = std::getenv("QUIRE_SHIFTED_CLOCK");
  const int descriptor = file == nullptr ? -1 : open(file, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  void* const memory = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, descriptor, 0);
  close(descriptor);
  return memory == MAP_FAILED ? nullptr : static_cast<std::atomic<int64_t>*>(memory);
}

int64_t shift() {
  static const std::atomic<int64_t>* const value = map_shift();
  return value == nullptr ? 0 : value->load(std::memory_order_relaxed);
}

int system_clock_gettime(clockid_t clock, timespec* time) {
  using Function = int (*)(clockid_t, timespec*);
  static const auto function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "clock_gettime"));
  return function(clock, time);
}

}  // namespace

extern "C" {
int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = system_clock_gettime(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += shift();
  return result;
}
time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(timeval* out, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}
}
