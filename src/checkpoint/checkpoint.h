#pragma once
// One reader for every kind of model file. Weights are named as in Hugging Face's Llama
// ("model.layers.0.self_attn.q_proj.weight"), whatever the file calls them. Files are untrusted: every length is
// checked, an error names the file and the field.
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_config.h"
#include "tensor/dtype.h"

namespace quire {

// A tensor in its file. shape is outermost first ([rows = out features, columns = in features] for a linear).
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

// Text parts of a checkpoint, as raw as the file has them; src/text makes a tokenizer of them.
struct TokenizerFiles {
  // Hugging Face folder: file contents (empty if absent).
  std::string tokenizer_json, tokenizer_config_json, special_tokens_map_json;
  std::string sentence_piece_model;  // tokenizer.model or spiece.model, where there is no tokenizer.json
  // Jinja sources by name, "default" for the one without a name. A folder: chat_template.jinja and
  // additional_chat_templates/NAME.jinja; without these chat_template.json, and tokenizer_config.json's, a string or a
  // list. GGUF: tokenizer.chat_template and tokenizer.chat_template.NAME.
  std::map<std::string, std::string, std::less<>> chat_templates;
  // GGUF: model "gpt2" or "llama"; empty for a folder.
  struct Gguf {
    std::string model, pre;
    std::vector<std::string> tokens, merges;
    std::vector<float> scores;
    std::vector<int32_t> token_types;  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    int32_t bos_id = -1, eos_id = -1, eot_id = -1, unk_id = -1, pad_id = -1;
    std::optional<bool> add_bos, add_eos, add_space_prefix;  // empty: the file doesn't say
  };
  std::unique_ptr<Gguf> gguf;
};

// Defaults of generation_config.json (or none).
struct GenerationConfig {
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, max_new_tokens;
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const GenerationConfig& generation_config() const = 0;
  virtual TokenizerFiles read_tokenizer_files() const = 0;  // fields empty if there are none

  virtual const TensorInfo* find(std::string_view name) const = 0;  // null if absent
  // Bytes of rows [row, row + rows) of the outermost dimension, valid until the Checkpoint dies or release() is called
  // for them. `scratch` backs readers that make the data (dummy weights); others ignore it. Safe to call from several
  // threads.
  virtual const std::byte* rows(const TensorInfo& tensor, int64_t row, int64_t rows,
                                std::vector<std::byte>& scratch) const = 0;
  // For dummy weights, which a device can make itself: the key of this tensor (checkpoint/dummy.h).
  virtual std::optional<uint64_t> dummy_key_of(const TensorInfo&) const { return std::nullopt; }
  // The caller is done with this tensor's pages: the mapping may drop them. They come back from the file if read again.
  virtual void release(const TensorInfo& tensor) const = 0;
  virtual int64_t weight_bytes() const = 0;  // all tensors
  virtual std::string path() const = 0;
};

enum class LoadFormat { kAuto, kDummy };

// path: a .gguf file, a Hugging Face folder, or a hub id ("meta-llama/Llama-3.1-8B") that is looked up under
// HF_HUB_CACHE, HF_HOME or ~/.cache/huggingface. kDummy needs config.json only (or the folder itself with it). Throws
// Error naming what is missing.
std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path, LoadFormat format, uint64_t seed = 0);

// The tokenizer of a model name as above, for --tokenizer: of a folder, which needs no config.json, of a .gguf file, or
// of a file alone (tokenizer.json or a SentencePiece .model).
TokenizerFiles open_tokenizer_files(const std::string& path);

// The embedded default model, used when none is named: $QUIRE_DEFAULT_MODEL, else the .gguf file in ../share/quire
// beside the program's folder, else what ./quickstart put into the cache ($XDG_CACHE_HOME or ~/.cache, quire/). Throws
// Error(kNotFound) saying how to get it.
std::string default_model_path();

// Where a model name leads on this disk: the file or folder (a folder with one .gguf file and no config.json: that
// file). A hub id may name a revision, "org/name@revision". Throws Error(kNotFound) with one line that says how to
// fetch it.
std::string resolve_model_path(const std::string& model);

}  // namespace quire
