#include "attention/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>
#include <vector>

#include "attention/phased.h"
#include "base/error.h"

namespace quire {
namespace {

struct BackendEntry {
  std::string_view name, alias;
  std::vector<std::string> (*refusals)(const AttentionGroup&);
  std::unique_ptr<AttentionBackend> (*make)(ExtendStrategy);
};

constexpr std::array kBackends = {BackendEntry{"PHASED", "ROCM_AITER_FA", paged_backend_refusals, make_phased_backend},
                                  BackendEntry{"CPU_ATTN", "", paged_backend_refusals, make_joined_backend}};

std::string list_backends(const AttentionGroup& group) {
  std::string list;
  for (const BackendEntry& backend : kBackends) {
    const std::vector<std::string> reasons = backend.refusals(group);
    const std::string alias = backend.alias.empty() ? "" : fmt::format(" (alias {})", backend.alias);
    list += fmt::format("{}{}{}: {}", list.empty() ? "" : "; ", backend.name, alias,
                        reasons.empty() ? "fits" : fmt::format("[{}]", fmt::join(reasons, ", ")));
  }
  return list;
}

}  // namespace

std::unique_ptr<AttentionBackend> make_attention_backend(const std::string& name, const AttentionGroup& group,
                                                         ExtendStrategy strategy) {
  const bool automatic = name.empty() || name == "auto";
  for (const BackendEntry& backend : kBackends) {
    if (!automatic && name != backend.name && name != backend.alias) continue;
    const std::vector<std::string> reasons = backend.refusals(group);
    if (reasons.empty()) return backend.make(strategy);
    if (!automatic) {
      throw invalid_argument(
          fmt::format("Selected backend {} is not valid for this configuration. Reason: [{}]. Backends: {}", name,
                      fmt::join(reasons, ", "), list_backends(group)),
          "attention-backend");
    }
  }
  if (automatic) {
    throw invalid_argument(fmt::format("No valid attention backend found for CPU. Reasons: {}", list_backends(group)),
                           "attention-backend");
  }
  throw invalid_argument(
      fmt::format("--attention-backend: there is no backend {}. Backends: {}", name, list_backends(group)),
      "attention-backend");
}

}  // namespace quire
