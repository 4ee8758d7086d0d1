#pragma once
// What quire_logits computes on: a model's device, attention, and memory with copies to it and from it.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "model/device.h"
#include "model/model.h"

namespace quire {

class LogitsDevice {
 public:
  virtual ~LogitsDevice() = default;
  virtual std::unique_ptr<ModelDevice> model_device(const Checkpoint& checkpoint, const ModelOptions& options,
                                                    ThreadPool& pool) = 0;
  virtual std::unique_ptr<AttentionBackend> attention(const AttentionGroup& group) = 0;
  // Memory that lives as long as this.
  virtual void* allocate(size_t bytes) = 0;
  virtual void copy_in(void* destination, const void* source, size_t bytes) = 0;
  virtual void copy_out(void* destination, const void* source, size_t bytes) = 0;

  template <class T>
  T* copy_of(const std::vector<T>& values) {
    void* data = allocate(values.size() * sizeof(T));
    copy_in(data, values.data(), values.size() * sizeof(T));
    return static_cast<T*>(data);
  }
};

std::unique_ptr<LogitsDevice> make_cpu_logits_device();
// Throws Error(kUnavailable) with the reason if there is no GPU.
std::unique_ptr<LogitsDevice> make_gpu_logits_device();

}  // namespace quire
