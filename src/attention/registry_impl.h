#pragma once
// How a backend is found among those of a device. Included by the registries only.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/backend.h"
#include "base/error.h"

namespace quire {

struct BackendEntry {
  std::string_view name, alias;
  std::function<std::vector<std::string>(const AttentionGroup&)> refusals;
  std::function<std::unique_ptr<AttentionBackend>()> make;
};

inline std::string list_backends(std::span<const BackendEntry> backends, const AttentionGroup& group) {
  std::string list;
  for (const BackendEntry& backend : backends) {
    const std::vector<std::string> reasons = backend.refusals(group);
    const std::string alias = backend.alias.empty() ? "" : fmt::format(" (alias {})", backend.alias);
    list += fmt::format("{}{}{}: {}", list.empty() ? "" : "; ", backend.name, alias,
                        reasons.empty() ? "fits" : fmt::format("[{}]", fmt::join(reasons, ", ")));
  }
  return list;
}

// device: "CPU" or "GPU".
inline std::unique_ptr<AttentionBackend> choose_backend(std::span<const BackendEntry> backends, std::string_view device,
                                                        const std::string& name, const AttentionGroup& group) {
  const bool automatic = name.empty() || name == "auto";
  for (const BackendEntry& backend : backends) {
    if (!automatic && name != backend.name && name != backend.alias) continue;
    const std::vector<std::string> reasons = backend.refusals(group);
    if (reasons.empty()) return backend.make();
    if (!automatic) {
      throw invalid_argument(
          fmt::format("Selected backend {} is not valid for this configuration. Reason: [{}]. Backends: {}", name,
                      fmt::join(reasons, ", "), list_backends(backends, group)),
          "attention-backend");
    }
  }
  if (automatic) {
    throw invalid_argument(
        fmt::format("No valid attention backend found for {}. Reasons: {}", device, list_backends(backends, group)),
        "attention-backend");
  }
  throw invalid_argument(
      fmt::format("--attention-backend: there is no backend {}. Backends: {}", name, list_backends(backends, group)),
      "attention-backend");
}

}  // namespace quire
