#include "checkpoint/llama_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace quire {

std::vector<ExpectedTensor> llama_tensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size, q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  const int64_t inner = config.intermediate_size;
  std::vector<ExpectedTensor> tensors = {{"model.embed_tokens.weight", {config.vocab_size, hidden}}};
  for (int64_t i = 0; i < config.layers; ++i) {
    const auto add = [&](const char* part, std::vector<int64_t> shape) {
      tensors.push_back({fmt::format("model.layers.{}.{}.weight", i, part), std::move(shape)});
    };
    add("input_layernorm", {hidden});
    add("self_attn.q_proj", {q, hidden});
    add("self_attn.k_proj", {kv, hidden});
    add("self_attn.v_proj", {kv, hidden});
    add("self_attn.o_proj", {hidden, q});
    add("post_attention_layernorm", {hidden});
    add("mlp.gate_proj", {inner, hidden});
    add("mlp.up_proj", {inner, hidden});
    add("mlp.down_proj", {hidden, inner});
  }
  tensors.push_back({"model.norm.weight", {hidden}});
  if (!config.tie_word_embeddings) tensors.push_back({"lm_head.weight", {config.vocab_size, hidden}});
  return tensors;
}

void check_llama_tensors(const Checkpoint& checkpoint) {
  for (const ExpectedTensor& expected : llama_tensors(checkpoint.config())) {
    const TensorInfo* tensor = checkpoint.find(expected.name);
    if (tensor == nullptr) {
      throw invalid_argument(fmt::format("{}: tensor {} is missing", checkpoint.path(), expected.name), expected.name);
    }
    if (tensor->shape != expected.shape) {
      throw invalid_argument(
          fmt::format("{}: tensor {} has shape [{}], the config asks for [{}]", checkpoint.path(), expected.name,
                      fmt::join(tensor->shape, ", "), fmt::join(expected.shape, ", ")),
          expected.name);
    }
  }
}

}  // namespace quire
