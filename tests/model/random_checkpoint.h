#pragma once
// A Llama checkpoint in memory with random f32 weights, for tests that need a model but no file.
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace quire {

class RandomCheckpoint final : public Checkpoint {
 public:
  explicit RandomCheckpoint(ModelConfig config, uint64_t seed = 1) : config_(std::move(config)), random_(seed) {
    const int64_t hidden = config_.hidden_size, q = config_.heads * config_.head_dim,
                  kv = config_.kv_heads * config_.head_dim;
    add("model.embed_tokens.weight", {config_.vocab_size, hidden}, 1.0);
    for (int64_t i = 0; i < config_.layers; ++i) {
      const std::string p = "model.layers." + std::to_string(i) + ".";
      add(p + "input_layernorm.weight", {hidden}, 0.2, 1.0);
      add(p + "self_attn.q_proj.weight", {q, hidden}, 2.0 / std::sqrt(hidden));
      add(p + "self_attn.k_proj.weight", {kv, hidden}, 2.0 / std::sqrt(hidden));
      add(p + "self_attn.v_proj.weight", {kv, hidden}, 1.0 / std::sqrt(hidden));
      add(p + "self_attn.o_proj.weight", {hidden, q}, 1.0 / std::sqrt(q));
      add(p + "post_attention_layernorm.weight", {hidden}, 0.2, 1.0);
      add(p + "mlp.gate_proj.weight", {config_.intermediate_size, hidden}, 1.0 / std::sqrt(hidden));
      add(p + "mlp.up_proj.weight", {config_.intermediate_size, hidden}, 1.0 / std::sqrt(hidden));
      add(p + "mlp.down_proj.weight", {hidden, config_.intermediate_size}, 1.0 / std::sqrt(config_.intermediate_size));
    }
    add("model.norm.weight", {hidden}, 0.2, 1.0);
    if (!config_.tie_word_embeddings) add("lm_head.weight", {config_.vocab_size, hidden}, 1.0 / std::sqrt(hidden));
  }

  const ModelConfig& config() const override { return config_; }
  const GenerationConfig& generation_config() const override { return generation_config_; }
  TokenizerFiles read_tokenizer_files() const override { return {}; }
  const TensorInfo* find(std::string_view name) const override {
    const auto it = tensors_.find(std::string(name));
    return it == tensors_.end() ? nullptr : &it->second.info;
  }
  const std::byte* rows(const TensorInfo& tensor, int64_t row, int64_t, std::vector<std::byte>&) const override {
    const int64_t row_elements = tensor.elements() / tensor.shape[0];
    return reinterpret_cast<const std::byte*>(values(tensor.name).data() + row * row_elements);
  }
  void release(const TensorInfo&) const override {}
  int64_t weight_bytes() const override { return bytes_; }
  std::string path() const override { return "random"; }

  const std::vector<float>& values(const std::string& name) const { return tensors_.at(name).values; }
  void erase(const std::string& name) { tensors_.erase(name); }

 private:
  struct Tensor {
    TensorInfo info;
    std::vector<float> values;
  };
  void add(const std::string& name, std::vector<int64_t> shape, double deviation, double mean = 0.0) {
    Tensor tensor{{name, DType::kF32, std::move(shape)}, {}};
    std::normal_distribution<double> normal(mean, deviation);
    tensor.values.resize(static_cast<size_t>(tensor.info.elements()));
    for (float& value : tensor.values) value = static_cast<float>(normal(random_));
    bytes_ += tensor.info.elements() * 4;
    tensors_.emplace(name, std::move(tensor));
  }

  ModelConfig config_;
  GenerationConfig generation_config_;
  std::mt19937_64 random_;
  std::map<std::string, Tensor> tensors_;
  int64_t bytes_ = 0;
};

}  // namespace quire
