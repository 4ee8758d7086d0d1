#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "checkpoint/readers.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

fs::path home() { return environment("HOME").empty() ? fs::path("/") : fs::path(environment("HOME")); }

fs::path cache_home() {
  const std::string xdg = environment("XDG_CACHE_HOME");
  return xdg.empty() ? home() / ".cache" : fs::path(xdg);
}

// HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub, as huggingface_hub has it.
fs::path hub_cache() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string hf_home = environment("HF_HOME"); !hf_home.empty()) return fs::path(hf_home) / "hub";
  return cache_home() / "huggingface" / "hub";
}

bool is_hub_id(const std::string& model) {
  size_t slashes = 0;
  for (const char c : model) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '/';
    if (!plain) return false;
    slashes += c == '/';
  }
  return slashes == 1 && model.front() != '/' && model.back() != '/' && model.front() != '.' &&
         model.find("..") == std::string::npos;
}

// models--org--name/refs/main holds the commit whose folder is under snapshots/.
std::string find_in_hub_cache(const std::string& model) {
  fs::path folder = hub_cache() / ("models--" + std::string(model).replace(model.find('/'), 1, "--"));
  std::string commit;
  std::ifstream(folder / "refs" / "main") >> commit;
  if (commit.empty() || commit.find('/') != std::string::npos) return {};
  folder = folder / "snapshots" / commit;
  std::error_code ignored;
  return fs::is_directory(folder, ignored) ? folder.string() : std::string();
}

// The one GGUF file of a folder without config.json; "" if there is none or more than one.
std::string only_gguf(const std::string& folder) {
  std::string found;
  std::error_code ignored;
  if (fs::exists(fs::path(folder) / "config.json", ignored)) return {};
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".gguf") continue;
    if (!found.empty()) return {};
    found = entry.path().string();
  }
  return found;
}

}  // namespace

std::string default_model_path() {
  constexpr const char* kFile = "SmolLM2-135M-Instruct.Q4_1.gguf";
  std::error_code ignored;
  for (const fs::path& path : {fs::path(environment("QUIRE_DEFAULT_MODEL")), cache_home() / "quire" / kFile,
                               fs::path("/usr/share/quire") / kFile}) {
    if (!path.empty() && fs::exists(path, ignored)) return path.string();
  }
  throw not_found(fmt::format("no --model was given and the default one, {}, is not in {}; ./quickstart fetches it",
                              kFile, (cache_home() / "quire").string()),
                  "model");
}

std::string resolve_model_path(const std::string& model) {
  std::error_code error;
  if (fs::is_regular_file(model, error)) return model;
  if (fs::is_directory(model, error)) {
    const std::string gguf = only_gguf(model);
    return gguf.empty() ? model : gguf;
  }
  if (is_hub_id(model)) {
    const std::string folder = find_in_hub_cache(model);
    if (!folder.empty()) {
      const std::string gguf = only_gguf(folder);
      return gguf.empty() ? folder : gguf;
    }
    throw not_found(
        fmt::format("model {} is neither a path nor in the Hugging Face cache {}; fetch it with: hf download {}", model,
                    hub_cache().string(), model),
        "model");
  }
  throw not_found(fmt::format("model {} does not exist", model), "model");
}

std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path, LoadFormat format, uint64_t seed) {
  const std::string resolved = resolve_model_path(path);
  std::error_code ignored;
  if (fs::is_directory(resolved, ignored)) return open_hugging_face(resolved, format == LoadFormat::kDummy, seed);
  if (fs::path(resolved).filename() == "config.json" && format == LoadFormat::kDummy) {
    return open_hugging_face(fs::path(resolved).parent_path().string(), true, seed);
  }
  if (format == LoadFormat::kDummy)
    throw invalid_argument(fmt::format("--load-format dummy needs a folder with config.json, not {}", resolved),
                           "load-format");
  return open_gguf(resolved);
}

}  // namespace quire
