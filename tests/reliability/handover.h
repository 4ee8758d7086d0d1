#pragma once
// When the engine handed over each token, in memory that a server and the client that measures it share.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace quire {

constexpr size_t kHandoverClients = 256, kHandoverTokens = 4096;

struct HandoverTimes {
  std::atomic<int64_t> at[kHandoverClients][kHandoverTokens];  // steady_clock's nanoseconds, by client and position
};

// Stays mapped until the process ends. Throws std::runtime_error.
inline HandoverTimes* map_handover_times(const std::string& file, bool create) {
  const int descriptor = open(file.c_str(), create ? O_RDWR | O_CREAT : O_RDWR, 0600);
  if (descriptor < 0 || (create && ftruncate(descriptor, sizeof(HandoverTimes)) != 0)) {
    throw std::runtime_error("cannot open " + file);
  }
  void* const memory = mmap(nullptr, sizeof(HandoverTimes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + file);
  return static_cast<HandoverTimes*>(memory);
}

}  // namespace quire
