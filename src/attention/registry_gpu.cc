#include <array>

#include "attention/phased.h"
#include "attention/phased_gpu.h"
#include "attention/registry.h"
#include "attention/registry_impl.h"

namespace quire {

std::unique_ptr<AttentionBackend> make_gpu_attention_backend(const std::string& name, const AttentionGroup& group,
                                                             ExtendStrategy strategy, gpu::Stream& stream,
                                                             const gpu::DeviceInfo& device) {
  const auto other_device = [](const AttentionGroup&) { return std::vector<std::string>{"it runs with --device cpu"}; };
  const std::array backends = {
      BackendEntry{"PHASED", "ROCM_AITER_FA", paged_backend_refusals,
                   [&] { return make_gpu_phased_backend(stream, device, strategy); }},
      BackendEntry{"CPU_ATTN", "", other_device, [] { return std::unique_ptr<AttentionBackend>(); }}};
  return choose_backend(backends, "GPU", name, group);
}

}  // namespace quire
