#include "gpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace quire::gpu {
namespace {

struct Name {
  std::string_view name, platform;
};
constexpr std::array kNames = {Name{"cuda", "CUDA"}, Name{"hip", "HIP"}, Name{"rocm", "HIP"}};

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names = {"auto", "cpu"};
  for (const Name& known : kNames) names.emplace_back(known.name);
  return names;
}

bool insists_on_device(std::string_view name) {
  const auto* const known = std::find_if(kNames.begin(), kNames.end(), [&](const Name& n) { return n.name == name; });
  if (known == kNames.end()) return false;
  const bool other = !platform().empty() && platform() != known->platform;
  const std::string reason = other ? fmt::format("this program was built for {}", platform()) : why_no_device();
  if (reason.empty()) return true;
  throw Error(ErrorKind::kUnavailable, fmt::format("--device {}: no GPU can be used: {}", name, reason), "device");
}

}  // namespace quire::gpu
