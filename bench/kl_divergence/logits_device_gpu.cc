#include "attention/registry.h"
#include "gpu/context.h"
#include "gpu/memory.h"
#include "kl_divergence/logits_device.h"
#include "model/gpu_device.h"

namespace quire {
namespace {

class GpuLogitsDevice final : public LogitsDevice {
 public:
  std::unique_ptr<ModelDevice> model_device(const Checkpoint& checkpoint, const ModelOptions& options,
                                            ThreadPool& pool) override {
    return make_gpu_model_device(checkpoint, options, context_, pool);
  }
  std::unique_ptr<AttentionBackend> attention(const AttentionGroup& group) override {
    return make_gpu_attention_backend("", group, ExtendStrategy::kPaged, context_.stream, context_.info);
  }
  void* allocate(size_t bytes) override { return memory_.emplace_back(bytes).data(); }
  void copy_in(void* destination, const void* source, size_t bytes) override {
    context_.stream.copy_to_device(destination, source, bytes, "input");
  }
  void copy_out(void* destination, const void* source, size_t bytes) override {
    context_.stream.copy_to_host(destination, source, bytes, "logits");
    context_.stream.wait("logits");
  }

 private:
  gpu::Context context_;
  std::vector<gpu::DeviceMemory> memory_;
};

}  // namespace

std::unique_ptr<LogitsDevice> make_gpu_logits_device() { return std::make_unique<GpuLogitsDevice>(); }

}  // namespace quire
