#pragma once
// A queue of work for the device, graphs recorded from it, and events. Every copy and every wait has a name and is
// counted.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::gpu {

// How often something happened on a stream, by name.
struct TransferCount {
  enum class Kind : uint8_t { kToDevice, kToHost, kWait, kGraph, kKernel } kind;
  std::string_view name;  // of static storage
  int64_t times = 0, bytes = 0;
};

// A recorded sequence of work, launched as one.
class Graph {
 public:
  Graph() = default;
  explicit Graph(void* exec) : exec_(exec) {}
  ~Graph();
  Graph(Graph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(exec_, other.exec_);
    return *this;
  }
  void* native() const { return exec_; }
  explicit operator bool() const { return exec_ != nullptr; }

 private:
  void* exec_ = nullptr;
};

class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void* native() const { return event_; }

 private:
  void* event_ = nullptr;
};
float milliseconds_between(const Event& begin, const Event& end);  // both have happened

// Used by one thread at a time. Names are string literals.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Host memory that is not pinned makes the caller wait.
  void copy_to_device(void* destination, const void* source, size_t bytes, std::string_view name);
  void copy_to_host(void* destination, const void* source, size_t bytes, std::string_view name);
  void copy_on_device(void* destination, const void* source, size_t bytes);
  void zero(void* destination, size_t bytes);
  // The host waits until all work so far is done.
  void wait(std::string_view name);
  void record(const Event& event);
  void wait_on_device(const Event& event);               // later work of this stream waits, the host doesn't
  void wait(const Event& event, std::string_view name);  // the host waits for the event

  // Records what `work` puts on this stream instead of doing it.
  Graph capture(const std::function<void()>& work);
  void launch(const Graph& graph, std::string_view name);

  void count_launch() { count(TransferCount::Kind::kKernel, "kernel", 0); }
  const std::vector<TransferCount>& counts() const { return counts_; }
  void reset_counts() { counts_.clear(); }
  void* native() const { return stream_; }

 private:
  void count(TransferCount::Kind kind, std::string_view name, size_t bytes);

  void* stream_ = nullptr;
  bool capturing_ = false;
  std::vector<TransferCount> counts_;
};

}  // namespace quire::gpu
