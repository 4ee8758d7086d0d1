#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/dummy.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/llama_tensors.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/readers.h"
#include "checkpoint/safetensors.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxConfigBytes = size_t{16} << 20, kMaxTokenizerBytes = size_t{512} << 20;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string read_if_there(const fs::path& path, size_t limit) {
  return is_there(path) ? read_text_file(path.string(), limit) : std::string();
}

using ChatTemplates = decltype(TokenizerFiles::chat_templates);

// Chat templates as JSON files have them: a string, a list of {name, template}, or an object.
ChatTemplates named_templates(const nlohmann::json& value) {
  ChatTemplates out;
  if (value.is_string()) out["default"] = value.get<std::string>();
  if (value.is_array()) {
    for (const auto& entry : value) {
      const auto field = [&entry](const char* key) {
        const auto found = entry.is_object() ? entry.find(key) : entry.end();
        return entry.is_object() && found != entry.end() && found->is_string() ? found->get<std::string>() : "";
      };
      if (!field("name").empty()) out[field("name")] = field("template");
    }
  }
  if (value.is_object()) {
    for (const auto& [name, source] : value.items()) {
      if (source.is_string()) out[name] = source.get<std::string>();
    }
  }
  std::erase_if(out, [](const auto& entry) { return entry.second.empty(); });
  return out;
}

ChatTemplates read_json_templates(const std::string& text, const fs::path& path) {
  if (text.empty()) return {};
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) throw invalid_argument(path.string() + " is not JSON", "model");
  return json.is_object() && json.contains("chat_template") ? named_templates(json["chat_template"]) : ChatTemplates();
}

ChatTemplates read_chat_templates(const fs::path& folder, const std::string& tokenizer_config) {
  ChatTemplates files;
  if (std::string source = read_if_there(folder / "chat_template.jinja", kMaxConfigBytes); !source.empty()) {
    files["default"] = std::move(source);
  }
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "additional_chat_templates", ignored)) {
    if (entry.path().extension() == ".jinja") {
      files[entry.path().stem().string()] = read_text_file(entry.path().string(), kMaxConfigBytes);
    }
  }
  ChatTemplates of_tokenizer = read_json_templates(tokenizer_config, folder / "tokenizer_config.json");
  if (!files.empty()) return files;  // what the configuration has counts for nothing beside files of their own
  const fs::path of_processor = folder / "chat_template.json";
  ChatTemplates out = read_json_templates(read_if_there(of_processor, kMaxConfigBytes), of_processor);
  if (out.empty()) return of_tokenizer;
  // The processor's template goes first, but not where there are tools.
  if (const auto found = of_tokenizer.find("default"); found != of_tokenizer.end()) {
    out.try_emplace("tool_use", found->second);
  }
  for (auto& [name, source] : of_tokenizer) {
    if (name == "tool_use") {
      out[name] = std::move(source);
    } else {
      out.try_emplace(name, std::move(source));
    }
  }
  return out;
}

// Text parts and configs, which real and dummy checkpoints share.
class HuggingFaceFolder : public Checkpoint {
 public:
  explicit HuggingFaceFolder(std::string folder) : folder_(std::move(folder)) {
    const fs::path config = fs::path(folder_) / "config.json";
    if (!is_there(config)) {
      throw invalid_argument(
          fmt::format("{} has no config.json: it is neither a Hugging Face model folder nor does it hold one GGUF file",
                      folder_),
          "model");
    }
    config_ = parse_hf_config(read_text_file(config.string(), kMaxConfigBytes), config.string());
    const std::string generation_path = (fs::path(folder_) / "generation_config.json").string();
    const std::string generation = read_if_there(generation_path, kMaxConfigBytes);
    if (!generation.empty()) {
      generation_config_ = parse_generation_config(generation, generation_path);
      add_eos_tokens(generation, generation_path, config_);
    }
  }

  const ModelConfig& config() const override { return config_; }
  const GenerationConfig& generation_config() const override { return generation_config_; }
  std::string path() const override { return folder_; }

  TokenizerFiles read_tokenizer_files() const override { return read_tokenizer_folder(folder_); }

 protected:
  std::string folder_;
  ModelConfig config_;
  GenerationConfig generation_config_;
};

class SafetensorsCheckpoint final : public HuggingFaceFolder {
 public:
  explicit SafetensorsCheckpoint(const std::string& folder) : HuggingFaceFolder(folder) {
    const fs::path index = fs::path(folder) / "model.safetensors.index.json",
                   single = fs::path(folder) / "model.safetensors";
    if (is_there(index)) {
      open_shards(index);
    } else if (is_there(single)) {
      open_file(single.string());
    } else {
      throw invalid_argument(
          fmt::format(
              "{} has neither model.safetensors nor model.safetensors.index.json (dummy weights: --load-format dummy)",
              folder),
          "model");
    }
    // A head in the file counts for nothing where the config ties it (transformers does the same).
    if (!config_.tie_word_embeddings && find("lm_head.weight") == nullptr) {
      throw invalid_argument(
          fmt::format("{}: tensor lm_head.weight is missing and tie_word_embeddings is false", folder),
          "lm_head.weight");
    }
    if (config_.architecture == "LlamaForCausalLM") check_llama_tensors(*this);
  }

  const TensorInfo* find(std::string_view name) const override {
    const auto it = tensors_.find(name);
    return it == tensors_.end() ? nullptr : &it->second.entry.info;
  }
  const std::byte* rows(const TensorInfo& tensor, int64_t row, int64_t, std::vector<std::byte>&) const override {
    return stored(tensor).entry.data + row * (storage_bytes(tensor.dtype, tensor.elements()) / tensor.shape[0]);
  }
  void release(const TensorInfo& tensor) const override {
    const Stored& s = stored(tensor);
    s.file->drop_pages(s.entry.data, static_cast<size_t>(storage_bytes(tensor.dtype, tensor.elements())));
  }
  int64_t weight_bytes() const override { return weight_bytes_; }

 private:
  struct Stored {
    SafetensorsEntry entry;
    const MappedFile* file;
  };
  const Stored& stored(const TensorInfo& tensor) const { return tensors_.find(tensor.name)->second; }

  void open_file(const std::string& path) {
    const MappedFile& file = *files_.emplace_back(std::make_unique<MappedFile>(path));
    for (SafetensorsEntry& entry : read_safetensors(file.bytes(), path)) {
      weight_bytes_ += storage_bytes(entry.info.dtype, entry.info.elements());
      const std::string name = entry.info.name;
      if (!tensors_.emplace(name, Stored{std::move(entry), &file}).second) {
        throw invalid_argument(fmt::format("{}: tensor {} is in two files", path, name), "model");
      }
    }
  }

  void open_shards(const fs::path& index) {
    const auto json = nlohmann::json::parse(read_text_file(index.string(), kMaxTokenizerBytes), nullptr, false);
    if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
      throw invalid_argument(fmt::format("{}: weight_map is missing", index.string()), "weight_map");
    }
    std::map<std::string, int> shards;
    for (const auto& [tensor, shard] : json["weight_map"].items()) {
      if (!shard.is_string())
        throw invalid_argument(fmt::format("{}: the file of {} is not a string", index.string(), tensor), "weight_map");
      const fs::path name(shard.get<std::string>());
      if (name.has_parent_path()) {
        throw invalid_argument(fmt::format("{}: {} is not a file name of this folder", index.string(), name.string()),
                               "weight_map");
      }
      shards[name.string()] = 0;
    }
    for (const auto& [name, unused] : shards) {
      const fs::path path = index.parent_path() / name;
      if (!is_there(path))
        throw invalid_argument(fmt::format("{} names {}, which is not there", index.string(), name), "weight_map");
      open_file(path.string());
    }
    for (const auto& [tensor, shard] : json["weight_map"].items()) {
      const auto it = tensors_.find(tensor);
      const bool right =
          it != tensors_.end() && fs::path(it->second.file->path()).filename() == shard.get<std::string>();
      if (!right)
        throw invalid_argument(
            fmt::format("{}: tensor {} is not in {}", index.string(), tensor, shard.get<std::string>()), "weight_map");
    }
  }

  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, Stored, std::less<>> tensors_;
  int64_t weight_bytes_ = 0;
};

class DummyCheckpoint final : public HuggingFaceFolder {
 public:
  DummyCheckpoint(const std::string& folder, uint64_t seed) : HuggingFaceFolder(folder), seed_(seed) {
    dtype_ = config_.dtype == "float32" ? DType::kF32 : config_.dtype == "float16" ? DType::kF16 : DType::kBF16;
    for (ExpectedTensor& tensor : llama_tensors(config_)) {
      TensorInfo info{tensor.name, dtype_, std::move(tensor.shape)};
      weight_bytes_ += storage_bytes(dtype_, info.elements());
      tensors_.emplace(std::move(tensor.name), std::move(info));
    }
  }

  const TensorInfo* find(std::string_view name) const override {
    const auto it = tensors_.find(name);
    return it == tensors_.end() ? nullptr : &it->second;
  }
  const std::byte* rows(const TensorInfo& tensor, int64_t row, int64_t rows,
                        std::vector<std::byte>& scratch) const override {
    const int64_t elements = tensor.elements() / tensor.shape[0];
    scratch.resize(static_cast<size_t>(rows * elements * block_bytes(tensor.dtype)));
    fill_dummy(dummy_key(seed_, tensor.name), row * elements, rows * elements, tensor.dtype, scratch.data());
    return scratch.data();
  }
  std::optional<uint64_t> dummy_key_of(const TensorInfo& tensor) const override {
    return dummy_key(seed_, tensor.name);
  }
  void release(const TensorInfo&) const override {}
  int64_t weight_bytes() const override { return weight_bytes_; }

 private:
  uint64_t seed_;
  DType dtype_;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
  int64_t weight_bytes_ = 0;
};

}  // namespace

TokenizerFiles read_tokenizer_folder(const std::string& path) {
  const fs::path folder(path);
  TokenizerFiles files;
  files.tokenizer_json = read_if_there(folder / "tokenizer.json", kMaxTokenizerBytes);
  files.tokenizer_config_json = read_if_there(folder / "tokenizer_config.json", kMaxConfigBytes);
  files.special_tokens_map_json = read_if_there(folder / "special_tokens_map.json", kMaxConfigBytes);
  for (const char* name : {"tokenizer.model", "spiece.model"}) {
    if (!files.tokenizer_json.empty() || !files.sentence_piece_model.empty()) break;
    files.sentence_piece_model = read_if_there(folder / name, kMaxTokenizerBytes);
  }
  files.chat_templates = read_chat_templates(folder, files.tokenizer_config_json);
  return files;
}

TokenizerFiles read_tokenizer_file(const std::string& path) {
  TokenizerFiles files;
  const bool json = fs::path(path).extension() == ".json";
  (json ? files.tokenizer_json : files.sentence_piece_model) = read_text_file(path, kMaxTokenizerBytes);
  return files;
}

std::unique_ptr<Checkpoint> open_hugging_face(const std::string& folder, bool dummy, uint64_t seed) {
  if (dummy) return std::make_unique<DummyCheckpoint>(folder, seed);
  return std::make_unique<SafetensorsCheckpoint>(folder);
}

}  // namespace quire
