#include <cstring>

#include "attention/registry.h"
#include "kl_divergence/logits_device.h"
#include "model/cpu_device.h"
#include "tensor/workspace.h"

namespace quire {
namespace {

class CpuLogitsDevice final : public LogitsDevice {
 public:
  std::unique_ptr<ModelDevice> model_device(const Checkpoint& checkpoint, const ModelOptions& options,
                                            ThreadPool& pool) override {
    return make_cpu_model_device(checkpoint, options, pool);
  }
  std::unique_ptr<AttentionBackend> attention(const AttentionGroup& group) override {
    return make_attention_backend("", group);
  }
  void* allocate(size_t bytes) override {
    return memory_.emplace_back(std::make_unique<Workspace>(bytes))->take<std::byte>(bytes);
  }
  void copy_in(void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
  }
  void copy_out(void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
  }

 private:
  std::vector<std::unique_ptr<Workspace>> memory_;
};

}  // namespace

std::unique_ptr<LogitsDevice> make_cpu_logits_device() { return std::make_unique<CpuLogitsDevice>(); }

}  // namespace quire
