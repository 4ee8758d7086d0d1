#pragma once
// Time of work on a GPU's stream. For builds with one.
#include "gpu/stream.h"

namespace quire {

// From the start of what fn puts on the stream to its end; the host waits.
template <class Fn>
double gpu_seconds_of(gpu::Stream& stream, Fn&& fn) {
  const gpu::Event begin, end;
  stream.record(begin);
  fn();
  stream.record(end);
  stream.wait(end, "end of a measurement");
  return static_cast<double>(gpu::milliseconds_between(begin, end)) * 1e-3;
}

}  // namespace quire
