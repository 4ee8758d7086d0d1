#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "checkpoint/gguf_tokenizer.h"
#include "checkpoint/mapped_file.h"
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

// "org/name" or "name" with a revision after "@", if there is one; the parts hold nothing that could leave the cache's
// folder.
struct HubId {
  std::string repository, revision = "main";
};

std::optional<HubId> parse_hub_id(const std::string& model) {
  const auto plain = [](std::string_view part) {
    const bool characters = std::all_of(part.begin(), part.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
             c == '.';
    });
    return characters && !part.empty() && part.front() != '.' && part.find("..") == std::string_view::npos;
  };
  HubId id;
  id.repository = model.substr(0, model.find('@'));
  if (id.repository.size() < model.size()) id.revision = model.substr(id.repository.size() + 1);
  const size_t slash = id.repository.find('/');
  const std::string_view repository = id.repository;
  const bool good = slash == std::string::npos
                        ? plain(repository)
                        : plain(repository.substr(0, slash)) && plain(repository.substr(slash + 1));
  if (!good || !plain(id.revision)) return std::nullopt;
  return id;
}

// models--org--name/refs/REVISION holds the commit whose folder is under snapshots/; a commit names its folder itself.
// "" if it isn't there.
std::string find_in_hub_cache(const HubId& id) {
  std::string name = id.repository;
  if (const size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  const fs::path folder = hub_cache() / ("models--" + name);
  std::string commit;
  std::ifstream(folder / "refs" / id.revision) >> commit;
  if (commit.empty()) commit = id.revision;
  if (commit.find('/') != std::string::npos || commit.front() == '.') return {};
  const fs::path snapshot = folder / "snapshots" / commit;
  std::error_code ignored;
  return fs::is_directory(snapshot, ignored) ? snapshot.string() : std::string();
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
  std::error_code error;
  if (std::string named = environment("QUIRE_DEFAULT_MODEL"); !named.empty()) {
    if (!fs::exists(named, error))
      throw not_found(fmt::format("QUIRE_DEFAULT_MODEL={} does not exist", named), "QUIRE_DEFAULT_MODEL");
    return named;
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path share = program.parent_path().parent_path() / "share" / "quire";
    if (std::string shipped = only_gguf(share.string()); !shipped.empty()) return shipped;
  }
  const fs::path cached = cache_home() / "quire" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (fs::exists(cached, error)) return cached.string();
  throw not_found(
      fmt::format("no --model was given and the default one is not at {}; ./quickstart fetches it", cached.string()),
      "model");
}

std::string resolve_model_path(const std::string& model) {
  std::error_code error;
  const auto folder_or_gguf = [](const std::string& folder) {
    std::string gguf = only_gguf(folder);
    return gguf.empty() ? folder : gguf;
  };
  if (fs::is_regular_file(model, error)) return model;
  if (fs::is_directory(model, error)) return folder_or_gguf(model);
  // A name without a slash that ends in .gguf means a file; any other may be one of the hub's old single names
  // ("gpt2").
  const auto id = parse_hub_id(model);
  if (!id || fs::path(model).extension() == ".gguf")
    throw not_found(fmt::format("model {} does not exist", model), "model");
  const std::string folder = find_in_hub_cache(*id);
  if (!folder.empty()) return folder_or_gguf(folder);
  const std::string revision = id->revision == "main" ? std::string() : " --revision " + id->revision;
  throw not_found(
      fmt::format("model {} is neither a path nor in the Hugging Face cache {}; fetch it with: hf download {}{}", model,
                  hub_cache().string(), id->repository, revision),
      "model");
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

TokenizerFiles open_tokenizer_files(const std::string& path) {
  const std::string resolved = resolve_model_path(path);
  std::error_code ignored;
  if (fs::is_directory(resolved, ignored)) return read_tokenizer_folder(resolved);
  const fs::path extension = fs::path(resolved).extension();
  if (extension == ".json" || extension == ".model") return read_tokenizer_file(resolved);
  const MappedFile file(resolved);
  return read_gguf_tokenizer(GgufFile(file.bytes(), resolved));
}

}  // namespace quire
