#include "emulator/runtime.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace emulator {
namespace {

struct Memory {
  std::mutex mutex;
  std::unordered_map<void*, size_t> sizes;
  size_t used = 0;
};
Memory& memory() {
  static auto* const made = new Memory;
  return *made;
}

thread_local Status last = Status::kSuccess;
thread_local std::string last_fault;

std::map<const void*, size_t>& allowed() {
  static auto* const made = new std::map<const void*, size_t>;
  return *made;
}

}  // namespace

const char* text_of(Status status) {
  switch (status) {
    case Status::kSuccess:
      return "no error";
    case Status::kInvalidValue:
      return "invalid argument";
    case Status::kOutOfMemory:
      return "out of memory";
    default:
      return last_fault.c_str();
  }
}

Status fail(Status status) {
  last = status;
  return status;
}

Status take_last_status() { return std::exchange(last, Status::kSuccess); }

Status allocate(void** data, size_t bytes) {
  constexpr size_t kAlignment = 256;
  Memory& m = memory();
  const std::scoped_lock lock(m.mutex);
  if (bytes > DeviceProperties().totalGlobalMem - m.used) return fail(Status::kOutOfMemory);
  if (posix_memalign(data, kAlignment, bytes) != 0) return fail(Status::kOutOfMemory);
  constexpr int kNothing = 0xff;  // NaN in every type of float
  std::memset(*data, kNothing, bytes);
  m.sizes[*data] = bytes;
  m.used += bytes;
  return Status::kSuccess;
}

Status release(void* data) {
  Memory& m = memory();
  const std::scoped_lock lock(m.mutex);
  const auto found = m.sizes.find(data);
  if (found == m.sizes.end()) return data == nullptr ? Status::kSuccess : fail(Status::kInvalidValue);
  m.used -= found->second;
  m.sizes.erase(found);
  std::free(data);
  return Status::kSuccess;
}

Status free_bytes(size_t* free, size_t* total) {
  Memory& m = memory();
  const std::scoped_lock lock(m.mutex);
  *total = DeviceProperties().totalGlobalMem;
  *free = *total - m.used;
  return Status::kSuccess;
}

Status Stream::submit(std::function<Status()> work) {
  if (!capturing_) return work();
  captured_.work.push_back(std::move(work));
  return Status::kSuccess;
}

Status Stream::begin_capture() {
  if (std::exchange(capturing_, true)) return fail(Status::kInvalidValue);
  return Status::kSuccess;
}

Status Stream::end_capture(Graph** graph) {
  if (!std::exchange(capturing_, false)) return fail(Status::kInvalidValue);
  *graph = new Graph(std::exchange(captured_, {}));
  return Status::kSuccess;
}

Status Graph::run(Stream* stream) const {
  for (const auto& step : work) {
    if (const Status status = stream->submit(step); status != Status::kSuccess) return status;
  }
  return Status::kSuccess;
}

Status record(Event* event, Stream* stream) {
  return stream->submit([=] {
    event->happened = std::chrono::steady_clock::now();
    return Status::kSuccess;
  });
}

float milliseconds_between(const Event& begin, const Event& end) {
  return std::chrono::duration<float, std::milli>(end.happened - begin.happened).count();
}

Status copy(Stream* stream, void* to, const void* from, size_t bytes) {
  return stream->submit([=] {
    std::memcpy(to, from, bytes);
    return Status::kSuccess;
  });
}

Status set(Stream* stream, void* to, int value, size_t bytes) {
  return stream->submit([=] {
    std::memset(to, value, bytes);
    return Status::kSuccess;
  });
}

Status allow_shared_bytes(const void* kernel, int bytes) {
  if (bytes < 0 || static_cast<size_t>(bytes) > kMostSharedBytes) return fail(Status::kInvalidValue);
  allowed()[kernel] = static_cast<size_t>(bytes);
  return Status::kSuccess;
}

bool is_allowed(const void* kernel, size_t bytes, size_t always) {
  const auto found = allowed().find(kernel);
  return bytes <= always || (found != allowed().end() && bytes <= found->second);
}

Status launch_now(const Launch& launch) {
  std::string fault = run_launch(launch);
  if (fault.empty()) return Status::kSuccess;
  last_fault = std::move(fault);
  return fail(Status::kFault);
}

}  // namespace emulator
