#include "base/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <stdexcept>

#include "base/error.h"

namespace quire {
namespace {

using enum VariableUse;

constexpr std::array kTable = {
    VariableRow{"QUIRE_API_KEY", kOption, "", "key that clients must send (--api-key of serve)"},
    VariableRow{"QUIRE_CPU_ISA", kDirect, "", "scalar, avx2 or avx512: forces the instruction set of the CPU kernels"},
    VariableRow{"QUIRE_DEFAULT_MODEL", kDirect, "", "path of the model that is used when none is named"},
    VariableRow{"QUIRE_KV_CACHE_LAYOUT", kOption, "", "plain or shuffle (--kv-cache-layout)"},
    VariableRow{"QUIRE_LOG_LEVEL", kOption, "", "debug, info, warning or error (--log-level)"},
    VariableRow{"QUIRE_MODEL", kOption, "", "model to load (--model)"},
    VariableRow{"QUIRE_THREADS", kOption, "", "compute threads (--threads)"},
    VariableRow{"HF_HOME", kDirect, "", "root of the Hugging Face cache; hub ids resolve under its hub/ folder"},
    VariableRow{"HF_HUB_CACHE", kDirect, "", "folder of the Hugging Face hub cache; wins over HF_HOME"},
    VariableRow{"OPENAI_API_KEY", kOption, "", "key that chat and complete send to --url (--api-key)"},
    VariableRow{"VLLM_API_KEY", kOption, "", "as QUIRE_API_KEY"},
    VariableRow{"VLLM_ATTENTION_BACKEND", kOption, "", "as --attention-backend"},
    VariableRow{"VLLM_BATCH_INVARIANT", kAccepted, "",
                "no effect: on the CPU results never depend on the batch, on a GPU they may"},
    VariableRow{"VLLM_CONFIGURE_LOGGING", kAccepted, "", "no effect"},
    VariableRow{"VLLM_CPU_KVCACHE_SPACE", kOption, "gib", "size of the KV cache in GiB (--kv-cache-memory-bytes)"},
    VariableRow{"VLLM_CPU_NUM_OF_RESERVED_CPU", kNoEffect, "", "use --threads"},
    VariableRow{"VLLM_CPU_OMP_THREADS_BIND", kNoEffect, "", "use --numa-bind, --numa-bind-cpus"},
    VariableRow{"VLLM_DO_NOT_TRACK", kAccepted, "", "nothing is ever sent anywhere"},
    VariableRow{"VLLM_KV_CACHE_LAYOUT", kOption, "NHD=plain;LBNHC=plain",
                "NHD is the plain layout (--kv-cache-layout)"},
    VariableRow{"VLLM_LOGGING_LEVEL", kOption, "", "as QUIRE_LOG_LEVEL"},
    VariableRow{"VLLM_LOG_STATS_INTERVAL", kNoEffect, "",
                "the statistics line comes every 10 s; --disable-log-stats turns it off"},
    VariableRow{"VLLM_NO_USAGE_STATS", kAccepted, "", "nothing is ever sent anywhere"},
    VariableRow{"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", kOption, "1=shuffle;true=shuffle;0=plain;false=plain",
                "1 is the shuffled layout (--kv-cache-layout shuffle)"},
    VariableRow{"VLLM_ROCM_USE_AITER", kOption, "1=ROCM_AITER_FA;true=ROCM_AITER_FA;0=auto;false=auto",
                "1 is --attention-backend ROCM_AITER_FA"},
    VariableRow{"VLLM_ROCM_USE_AITER_MHA", kAccepted, "", "no effect: the automatic backend is ROCM_AITER_FA too"},
    VariableRow{"VLLM_SERVER_DEV_MODE", kOption, "", "1 is --server-dev-mode"},
    VariableRow{"VLLM_TARGET_DEVICE", kAccepted, "", "no effect"},
    VariableRow{"VLLM_USE_V1", kNoEffect, "", "there is one engine"},
    VariableRow{"VLLM_WORKER_MULTIPROC_METHOD", kAccepted, "", "everything runs in one process"},
};

const VariableRow* find_row(std::string_view name) {
  const auto* row = std::find_if(kTable.begin(), kTable.end(), [&](const VariableRow& r) { return r.name == name; });
  return row == kTable.end() ? nullptr : row;
}

std::string gib_to_bytes(std::string_view name, std::string_view value) {
  double gib = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), gib);
  constexpr double kMaxGib = 1 << 20;
  if (error != std::errc{} || end != value.data() + value.size() || !(gib >= 0) || gib > kMaxGib) {
    throw invalid_argument(fmt::format("{}={}: must be a number of GiB from 0 to {}", name, value, kMaxGib),
                           std::string(name));
  }
  return fmt::format("{}", static_cast<long long>(gib * (1 << 30)));
}

// Upper and lower case are the same: people write True.
bool same_letters(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

std::string translate(const VariableRow& row, const std::string& value) {
  if (row.translation.empty()) return value;
  if (row.translation == "gib") return gib_to_bytes(row.name, value);
  std::vector<std::string_view> known;
  std::string_view rest = row.translation;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (same_letters(pair.substr(0, equals), value)) return std::string(pair.substr(equals + 1));
    known.push_back(pair.substr(0, equals));
  }
  throw invalid_argument(fmt::format("{}={}: must be one of {}", row.name, value, fmt::join(known, ", ")),
                         std::string(row.name));
}

}  // namespace

std::span<const VariableRow> environment_table() { return kTable; }

std::optional<std::string> environment_value(std::string_view name) {
  const VariableRow* row = find_row(name);
  if (row == nullptr) throw std::logic_error("not in the environment table: " + std::string(name));
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return translate(*row, value);
}

std::vector<std::string> environment_warnings(const char* const* environment) {
  std::vector<std::string> warnings, unknown;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with("VLLM_") && !name.starts_with("QUIRE_")) continue;
    const VariableRow* row = find_row(name);
    if (row != nullptr && row->use == kNoEffect)
      warnings.push_back(fmt::format("{} has no effect here: {}", name, row->help));
    // Which AITER kernels to use is asked for by a dozen variables more, which all mean nothing here. QUIRE_TEST_*
    // belongs to the tests.
    if (row == nullptr && !name.starts_with("VLLM_ROCM_USE_AITER_") && !name.starts_with("QUIRE_TEST_"))
      unknown.emplace_back(name);
  }
  std::sort(unknown.begin(), unknown.end());
  if (!unknown.empty()) {
    warnings.push_back(
        fmt::format("unknown environment variable{}: {}", unknown.size() > 1 ? "s" : "", fmt::join(unknown, ", ")));
  }
  return warnings;
}

std::string environment_markdown() {
  std::string out = "| variable | meaning |\n| --- | --- |\n";
  for (const VariableRow& row : kTable) out += fmt::format("| `{}` | {} |\n", row.name, row.help);
  return out;
}

}  // namespace quire
