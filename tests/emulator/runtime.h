#pragma once
// The runtime of the emulated device under no vendor's name.
#include <chrono>
#include <cstddef>
#include <functional>
#include <tuple>
#include <vector>

#include "emulator/machine.h"

namespace emulator {

enum class Status { kSuccess, kInvalidValue, kOutOfMemory, kFault, kNoDevice, kNoRuntime };
// Of kFault: what the last fault was.
const char* text_of(Status status);
Status fail(Status status);  // becomes the last status; returned
Status take_last_status();

constexpr int kMajor = 9;
struct DeviceProperties {
  char name[64] = "emulated device";
  char gcnArchName[64] = "emulated";  // HIP's name of the architecture
  int major = kMajor, minor = 0;
  int multiProcessorCount = kMultiprocessors;
  int l2CacheSize = 1 << 20;
  size_t totalGlobalMem = size_t{3} << 30;
};
struct FunctionAttributes {};

// What is allocated holds no zeros; what is allocated, freed or copied is checked.
Status allocate(void** data, size_t bytes);
Status release(void* data);
Status free_bytes(size_t* free, size_t* total);

class Stream;
class Graph {
 public:
  Status run(Stream* stream) const;
  std::vector<std::function<Status()>> work;
};

class Stream {
 public:
  // Does it now, or keeps it for the graph that is being captured.
  Status submit(std::function<Status()> work);
  Status begin_capture();
  Status end_capture(Graph** graph);

 private:
  bool capturing_ = false;
  Graph captured_;
};

struct Event {
  std::chrono::steady_clock::time_point happened;
};
Status record(Event* event, Stream* stream);
float milliseconds_between(const Event& begin, const Event& end);

Status copy(Stream* stream, void* to, const void* from, size_t bytes);
Status set(Stream* stream, void* to, int value, size_t bytes);

// Dynamic shared memory above `always` bytes has to be allowed.
Status allow_shared_bytes(const void* kernel, int bytes);
bool is_allowed(const void* kernel, size_t bytes, size_t always);

Status launch_now(const Launch& launch);

template <class... Parameters, class Dim>
Status launch(Stream* stream, void (*kernel)(Parameters...), const Dim& grid, const Dim& block, unsigned cluster,
              size_t shared_bytes, std::type_identity_t<Parameters>... parameters) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> parameters;
  };
  const Call call{kernel, {parameters...}};
  return stream->submit([=] {
    Launch made;
    made.grid = {grid.x, grid.y, grid.z};
    made.block = {block.x, block.y, block.z};
    made.cluster = cluster;
    made.shared_bytes = shared_bytes;
    made.kernel = reinterpret_cast<const void*>(kernel);
    made.arguments = &call;
    made.run = [](const void* arguments) {
      const auto& in = *static_cast<const Call*>(arguments);
      std::apply(in.kernel, in.parameters);
    };
    return launch_now(made);
  });
}

}  // namespace emulator
