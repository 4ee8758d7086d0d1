// The runtime's functions, of the vendor whose names EMULATOR_RUNTIME() makes. They work on host memory, and at once;
// between begin and end of a capture they are kept for later.
#if !defined(EMULATOR_RUNTIME)
#error "included by a vendor's header"
#endif
#include "emulator/runtime.h"

using EMULATOR_RUNTIME(Error_t) = emulator::Status;
using EMULATOR_RUNTIME(Stream_t) = emulator::Stream*;
using EMULATOR_RUNTIME(Event_t) = emulator::Event*;
using EMULATOR_RUNTIME(Graph_t) = emulator::Graph*;
using EMULATOR_RUNTIME(GraphExec_t) = emulator::Graph*;
constexpr auto EMULATOR_RUNTIME(Success) = emulator::Status::kSuccess;
constexpr auto EMULATOR_RUNTIME(ErrorNoDevice) = emulator::Status::kNoDevice;
constexpr auto EMULATOR_RUNTIME(ErrorSharedObjectInitFailed) = emulator::Status::kNoRuntime;
constexpr unsigned EMULATOR_RUNTIME(StreamNonBlocking) = 1;
enum EMULATOR_RUNTIME(StreamCaptureMode) { EMULATOR_RUNTIME(StreamCaptureModeThreadLocal) };
enum EMULATOR_RUNTIME(MemcpyKind) {
  EMULATOR_RUNTIME(MemcpyHostToDevice),
  EMULATOR_RUNTIME(MemcpyDeviceToHost),
  EMULATOR_RUNTIME(MemcpyDeviceToDevice)
};

inline const char* EMULATOR_RUNTIME(GetErrorString)(emulator::Status status) { return emulator::text_of(status); }
inline emulator::Status EMULATOR_RUNTIME(GetLastError)() { return emulator::take_last_status(); }

inline emulator::Status EMULATOR_RUNTIME(GetDeviceCount)(int* count) { return *count = 1, emulator::Status::kSuccess; }
inline emulator::Status EMULATOR_RUNTIME(DriverGetVersion)(int* v) { return *v = 1, emulator::Status::kSuccess; }
inline emulator::Status EMULATOR_RUNTIME(SetDevice)(int) { return emulator::Status::kSuccess; }
inline emulator::Status EMULATOR_RUNTIME(GetDevice)(int* device) { return *device = 0, emulator::Status::kSuccess; }
inline emulator::Status EMULATOR_RUNTIME(GetDeviceProperties)(emulator::DeviceProperties* properties, int) {
  return *properties = emulator::DeviceProperties(), emulator::Status::kSuccess;
}
inline emulator::Status EMULATOR_RUNTIME(FuncGetAttributes)(emulator::FunctionAttributes*, const void*) {
  return emulator::Status::kSuccess;
}
template <class... Parameters>
emulator::Status EMULATOR_RUNTIME(OccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, void (*)(Parameters...), int,
                                                                             size_t) {
  return *blocks = emulator::kBlocksPerMultiprocessor, emulator::Status::kSuccess;
}

inline emulator::Status EMULATOR_RUNTIME(Malloc)(void** data, size_t bytes) { return emulator::allocate(data, bytes); }
inline emulator::Status EMULATOR_RUNTIME(Free)(void* data) { return emulator::release(data); }
inline emulator::Status EMULATOR_RUNTIME(MemGetInfo)(size_t* free, size_t* total) {
  return emulator::free_bytes(free, total);
}
inline emulator::Status EMULATOR_RUNTIME(MemcpyAsync)(void* to, const void* from, size_t bytes,
                                                      EMULATOR_RUNTIME(MemcpyKind), emulator::Stream* stream) {
  return emulator::copy(stream, to, from, bytes);
}
inline emulator::Status EMULATOR_RUNTIME(MemsetAsync)(void* to, int value, size_t bytes, emulator::Stream* stream) {
  return emulator::set(stream, to, value, bytes);
}

inline emulator::Status EMULATOR_RUNTIME(StreamCreateWithFlags)(emulator::Stream** stream, unsigned) {
  return *stream = new emulator::Stream, emulator::Status::kSuccess;
}
inline emulator::Status EMULATOR_RUNTIME(StreamDestroy)(emulator::Stream* stream) {
  delete stream;
  return emulator::Status::kSuccess;
}
inline emulator::Status EMULATOR_RUNTIME(StreamSynchronize)(emulator::Stream*) { return emulator::Status::kSuccess; }
inline emulator::Status EMULATOR_RUNTIME(StreamWaitEvent)(emulator::Stream*, emulator::Event*, unsigned) {
  return emulator::Status::kSuccess;
}
inline emulator::Status EMULATOR_RUNTIME(EventCreate)(emulator::Event** event) {
  return *event = new emulator::Event, emulator::Status::kSuccess;
}
inline emulator::Status EMULATOR_RUNTIME(EventDestroy)(emulator::Event* event) {
  delete event;
  return emulator::Status::kSuccess;
}
inline emulator::Status EMULATOR_RUNTIME(EventRecord)(emulator::Event* event, emulator::Stream* stream) {
  return emulator::record(event, stream);
}
inline emulator::Status EMULATOR_RUNTIME(EventSynchronize)(emulator::Event*) { return emulator::Status::kSuccess; }
inline emulator::Status EMULATOR_RUNTIME(EventElapsedTime)(float* milliseconds, emulator::Event* begin,
                                                           emulator::Event* end) {
  return *milliseconds = emulator::milliseconds_between(*begin, *end), emulator::Status::kSuccess;
}

inline emulator::Status EMULATOR_RUNTIME(StreamBeginCapture)(emulator::Stream* stream,
                                                             EMULATOR_RUNTIME(StreamCaptureMode)) {
  return stream->begin_capture();
}
inline emulator::Status EMULATOR_RUNTIME(StreamEndCapture)(emulator::Stream* stream, emulator::Graph** graph) {
  return stream->end_capture(graph);
}
inline emulator::Status EMULATOR_RUNTIME(GraphDestroy)(emulator::Graph* graph) {
  delete graph;
  return emulator::Status::kSuccess;
}
inline emulator::Status EMULATOR_RUNTIME(GraphInstantiateWithFlags)(emulator::Graph** made, emulator::Graph* graph,
                                                                    unsigned long long) {
  return *made = new emulator::Graph(*graph), emulator::Status::kSuccess;
}
inline emulator::Status EMULATOR_RUNTIME(GraphExecDestroy)(emulator::Graph* graph) {
  delete graph;
  return emulator::Status::kSuccess;
}
inline emulator::Status EMULATOR_RUNTIME(GraphLaunch)(emulator::Graph* graph, emulator::Stream* stream) {
  return graph->run(stream);
}
