#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_tokenizer.h"
#include "checkpoint/llama_tensors.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/readers.h"

namespace quire {
namespace {

// A GGUF tensor name in Hugging Face's words; empty = not a Llama weight.
std::string hugging_face_name(std::string_view name) {
  static const std::unordered_map<std::string_view, std::string_view> kGlobal = {
      {"token_embd.weight", "model.embed_tokens.weight"},
      {"output_norm.weight", "model.norm.weight"},
      {"output.weight", "lm_head.weight"}};
  static const std::unordered_map<std::string_view, std::string_view> kLayer = {
      {"attn_norm", "input_layernorm"}, {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},   {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
      {"ffn_gate", "mlp.gate_proj"},    {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"}};
  if (const auto it = kGlobal.find(name); it != kGlobal.end()) return std::string(it->second);
  if (name.substr(0, 4) != "blk.") return {};
  const size_t number_end = name.find('.', 4), part_end = name.rfind('.');
  if (number_end == std::string_view::npos || part_end <= number_end) return {};
  const auto it = kLayer.find(name.substr(number_end + 1, part_end - number_end - 1));
  if (it == kLayer.end()) return {};
  return fmt::format("model.layers.{}.{}{}", name.substr(4, number_end - 4), it->second, name.substr(part_end));
}

class GgufCheckpoint final : public Checkpoint {
 public:
  explicit GgufCheckpoint(const std::string& path) : file_(path), gguf_(file_.bytes(), path) {
    const std::string_view architecture = required_string("general.architecture");
    if (architecture != "llama")
      throw gguf_.error(fmt::format("architecture {} is not supported; there is: llama", architecture));
    read_config();
    for (const GgufTensor& tensor : gguf_.tensors()) {
      const std::string name = hugging_face_name(tensor.info.name);
      if (name.empty()) continue;
      Entry entry{tensor.info, tensor.data};
      entry.info.name = name;
      weight_bytes_ += storage_bytes(tensor.info.dtype, tensor.info.elements());
      tensors_.emplace(name, std::move(entry));
    }
    config_.tie_word_embeddings = find("lm_head.weight") == nullptr;
    config_.attention_bias = find("model.layers.0.self_attn.q_proj.bias") != nullptr;
    config_.mlp_bias = find("model.layers.0.mlp.up_proj.bias") != nullptr;
    check_llama_tensors(*this);
    for (const GgufTensor& tensor : gguf_.tensors()) {
      if (tensor.info.name == "rope_freqs.weight") read_rope_factors(tensor);
    }
    const TensorInfo* q = find("model.layers.0.self_attn.q_proj.weight");
    config_.dtype = q == nullptr || q->dtype == DType::kF32 ? "float32"
                    : q->dtype == DType::kF16               ? "float16"
                    : q->dtype == DType::kBF16              ? "bfloat16"
                                                            : "quantized";
  }

  const ModelConfig& config() const override { return config_; }
  const GenerationConfig& generation_config() const override { return generation_config_; }
  int64_t weight_bytes() const override { return weight_bytes_; }
  std::string path() const override { return file_.path(); }

  const TensorInfo* find(std::string_view name) const override {
    const auto it = tensors_.find(name);
    return it == tensors_.end() ? nullptr : &it->second.info;
  }
  const std::byte* rows(const TensorInfo& tensor, int64_t row, int64_t, std::vector<std::byte>&) const override {
    return entry(tensor).data + row * storage_bytes(tensor.dtype, tensor.elements()) / tensor.shape[0];
  }
  void release(const TensorInfo& tensor) const override {
    file_.drop_pages(entry(tensor).data, static_cast<size_t>(storage_bytes(tensor.dtype, tensor.elements())));
  }

  TokenizerFiles read_tokenizer_files() const override {
    TokenizerFiles files = read_gguf_tokenizer(gguf_);
    const size_t tokens = files.gguf == nullptr ? 0 : files.gguf->tokens.size();
    if (tokens > static_cast<size_t>(config_.vocab_size)) {
      throw gguf_.error(fmt::format("tokenizer.ggml.tokens has {} entries, tensor token_embd.weight {} rows", tokens,
                                    config_.vocab_size));
    }
    return files;
  }

 private:
  struct Entry {
    TensorInfo info;
    const std::byte* data;
  };

  const Entry& entry(const TensorInfo& tensor) const { return tensors_.find(tensor.name)->second; }

  std::string_view required_string(const char* key) const {
    const auto value = gguf_.string(key);
    if (!value) throw gguf_.error(fmt::format("key {} is missing", key));
    return *value;
  }
  int64_t size(const char* key, std::optional<int64_t> fallback = std::nullopt) const {
    const auto value = gguf_.integer(key);
    if (!value && !fallback) throw gguf_.error(fmt::format("key {} is missing", key));
    const int64_t result = value ? *value : *fallback;
    check_size(result, gguf_.error(fmt::format("{} is {}; 1 to {} is allowed", key, result, kMaxModelSize)));
    return result;
  }
  void read_config() {
    config_.architecture = "LlamaForCausalLM";
    config_.name = std::string(gguf_.string("general.name").value_or(""));
    config_.hidden_size = size("llama.embedding_length");
    config_.layers = size("llama.block_count");
    config_.heads = size("llama.attention.head_count");
    config_.kv_heads = size("llama.attention.head_count_kv", config_.heads);
    config_.head_dim = size("llama.attention.key_length", std::max<int64_t>(1, config_.hidden_size / config_.heads));
    config_.intermediate_size = size("llama.feed_forward_length");
    config_.max_position = size("llama.context_length");
    config_.rms_norm_eps = gguf_.number("llama.attention.layer_norm_rms_epsilon").value_or(1e-5);
    config_.rope.interleaved = true;  // GGUF's Llama files have Q and K permuted for neighbouring pairs
    config_.rope.theta = gguf_.number("llama.rope.freq_base").value_or(10000.0);
    const auto value_size = gguf_.integer("llama.attention.value_length");
    if (value_size && *value_size != config_.head_dim) {
      throw gguf_.error(fmt::format(
          "llama.attention.value_length is {}, llama.attention.key_length {}: unlike sizes are not supported",
          *value_size, config_.head_dim));
    }
    const auto rotated = gguf_.integer("llama.rope.dimension_count");
    if (rotated && *rotated != config_.head_dim) {
      throw gguf_.error(
          fmt::format("llama.rope.dimension_count is {}, the head size {}: partial rotation is not supported", *rotated,
                      config_.head_dim));
    }
    read_rope_scaling(config_.rope);
    for (const GgufTensor& tensor : gguf_.tensors()) {
      if (tensor.info.name == "token_embd.weight") config_.vocab_size = tensor.info.shape[0];
    }
    if (config_.vocab_size == 0) throw gguf_.error("tensor token_embd.weight is missing");
    const auto vocab = static_cast<size_t>(config_.vocab_size);
    config_.bos_token_id = gguf_token_id(gguf_, "tokenizer.ggml.bos_token_id", vocab);
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
      if (const auto id = gguf_token_id(gguf_, key, vocab)) config_.eos_token_ids.push_back(*id);
    }
    check_config_numbers(config_, file_.path());
  }

  void read_rope_scaling(RopeConfig& rope) const {
    const std::string_view scaling = gguf_.string("llama.rope.scaling.type").value_or("none");
    if (scaling == "none") return;
    if (scaling != "linear" && scaling != "yarn") {
      throw gguf_.error(
          fmt::format("llama.rope.scaling.type {} is not supported; there are none, linear and yarn", quote(scaling)));
    }
    rope.type = scaling;
    rope.factor = gguf_.number("llama.rope.scaling.factor").value_or(1.0);
    if (scaling == "linear") return;
    rope.original_max_position = size("llama.rope.scaling.original_context_length", config_.max_position);
    rope.beta_fast = gguf_.number("llama.rope.scaling.yarn_beta_fast").value_or(rope.beta_fast);
    rope.beta_slow = gguf_.number("llama.rope.scaling.yarn_beta_slow").value_or(rope.beta_slow);
    // Here the key multiplies what the factor gives; in a config.json it takes its place.
    if (const auto attention = gguf_.number("llama.rope.scaling.attn_factor"))
      rope.attention_factor = *attention * yarn_magnitude(rope.factor);
  }

  void read_rope_factors(const GgufTensor& tensor) {
    if (tensor.info.elements() != config_.head_dim / 2) {
      throw gguf_.error(fmt::format("rope_freqs.weight has {} elements, head size {} asks for {}",
                                    tensor.info.elements(), config_.head_dim, config_.head_dim / 2));
    }
    config_.rope.freq_factors.resize(static_cast<size_t>(tensor.info.elements()));
    dequantize(tensor.info.dtype, tensor.data, config_.rope.freq_factors.data(), tensor.info.elements());
    for (const float factor : config_.rope.freq_factors) {
      if (!std::isfinite(factor) || factor <= 0.0f)
        throw gguf_.error(fmt::format("rope_freqs.weight holds {}", factor));
    }
  }

  MappedFile file_;
  GgufFile gguf_;
  ModelConfig config_;
  GenerationConfig generation_config_;
  std::map<std::string, Entry, std::less<>> tensors_;
  int64_t weight_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Checkpoint> open_gguf(const std::string& path) { return std::make_unique<GgufCheckpoint>(path); }

}  // namespace quire
