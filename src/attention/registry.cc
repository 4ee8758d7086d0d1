#include "attention/registry.h"

#include <array>

#include "attention/phased.h"
#include "attention/registry_impl.h"

namespace quire {

std::unique_ptr<AttentionBackend> make_attention_backend(const std::string& name, const AttentionGroup& group,
                                                         ExtendStrategy strategy) {
  const std::array backends = {
      BackendEntry{"PHASED", "ROCM_AITER_FA", paged_backend_refusals, [=] { return make_phased_backend(strategy); }},
      BackendEntry{"CPU_ATTN", "", paged_backend_refusals, [=] { return make_joined_backend(strategy); }}};
  return choose_backend(backends, "CPU", name, group);
}

}  // namespace quire
