#include <exception>

#include "gpu/runtime.h"
#include "gpu/stream.h"

namespace quire::gpu {
Graph::~Graph() {
  if (exec_ != nullptr) (void)QUIRE_RUNTIME(GraphExecDestroy)(static_cast<NativeGraphExec>(exec_));
}

Event::Event() {
  NativeEvent event = nullptr;
  check(QUIRE_RUNTIME(EventCreate)(&event), "event creation");
  event_ = event;
}

Event::~Event() { (void)QUIRE_RUNTIME(EventDestroy)(native_of(*this)); }

float milliseconds_between(const Event& begin, const Event& end) {
  float milliseconds = 0;
  check(QUIRE_RUNTIME(EventElapsedTime)(&milliseconds, native_of(begin), native_of(end)), "time between events");
  return milliseconds;
}

Stream::Stream() {
  NativeStream stream = nullptr;
  check(QUIRE_RUNTIME(StreamCreateWithFlags)(&stream, QUIRE_RUNTIME(StreamNonBlocking)), "stream creation");
  stream_ = stream;
}

Stream::~Stream() { (void)QUIRE_RUNTIME(StreamDestroy)(native_of(*this)); }

void Stream::count(TransferCount::Kind kind, std::string_view name, size_t bytes) {
  if (capturing_) return;
  for (TransferCount& counted : counts_) {
    if (counted.kind != kind || counted.name != name) continue;
    ++counted.times;
    counted.bytes += static_cast<int64_t>(bytes);
    return;
  }
  counts_.push_back({kind, name, 1, static_cast<int64_t>(bytes)});
}

void Stream::copy_to_device(void* destination, const void* source, size_t bytes, std::string_view name) {
  check(QUIRE_RUNTIME(MemcpyAsync)(destination, source, bytes, QUIRE_RUNTIME(MemcpyHostToDevice), native_of(*this)),
        "copy to the device");
  count(TransferCount::Kind::kToDevice, name, bytes);
}

void Stream::copy_to_host(void* destination, const void* source, size_t bytes, std::string_view name) {
  check(QUIRE_RUNTIME(MemcpyAsync)(destination, source, bytes, QUIRE_RUNTIME(MemcpyDeviceToHost), native_of(*this)),
        "copy to the host");
  count(TransferCount::Kind::kToHost, name, bytes);
}

void Stream::copy_on_device(void* destination, const void* source, size_t bytes) {
  check(QUIRE_RUNTIME(MemcpyAsync)(destination, source, bytes, QUIRE_RUNTIME(MemcpyDeviceToDevice), native_of(*this)),
        "copy on the device");
}

void Stream::zero(void* destination, size_t bytes) {
  check(QUIRE_RUNTIME(MemsetAsync)(destination, 0, bytes, native_of(*this)), "zeroing of memory");
}

void Stream::wait(std::string_view name) {
  check(QUIRE_RUNTIME(StreamSynchronize)(native_of(*this)), name);
  count(TransferCount::Kind::kWait, name, 0);
}

void Stream::record(const Event& event) {
  check(QUIRE_RUNTIME(EventRecord)(native_of(event), native_of(*this)), "event");
}

void Stream::wait_on_device(const Event& event) {
  check(QUIRE_RUNTIME(StreamWaitEvent)(native_of(*this), native_of(event), 0), "wait for an event");
}

void Stream::wait(const Event& event, std::string_view name) {
  check(QUIRE_RUNTIME(EventSynchronize)(native_of(event)), name);
  count(TransferCount::Kind::kWait, name, 0);
}

Graph Stream::capture(const std::function<void()>& work) {
  check(QUIRE_RUNTIME(StreamBeginCapture)(native_of(*this), QUIRE_RUNTIME(StreamCaptureModeThreadLocal)),
        "begin of a capture");
  capturing_ = true;
  NativeGraph graph = nullptr;
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  capturing_ = false;
  const Status ended = QUIRE_RUNTIME(StreamEndCapture)(native_of(*this), &graph);
  if (failure != nullptr) {
    if (graph != nullptr) (void)QUIRE_RUNTIME(GraphDestroy)(graph);
    std::rethrow_exception(failure);
  }
  check(ended, "end of a capture");
  NativeGraphExec exec = nullptr;
  const Status made = QUIRE_RUNTIME(GraphInstantiateWithFlags)(&exec, graph, 0);
  (void)QUIRE_RUNTIME(GraphDestroy)(graph);
  check(made, "making of a graph");
  return Graph(exec);
}

void Stream::launch(const Graph& graph, std::string_view name) {
  check(QUIRE_RUNTIME(GraphLaunch)(static_cast<NativeGraphExec>(graph.native()), native_of(*this)), name);
  count(TransferCount::Kind::kGraph, name, 0);
}

}  // namespace quire::gpu
