#include "model/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/activation/silu_mul.h"
#include "kernels/embedding/embedding.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "model/weights.h"

namespace quire {
namespace {

struct Layer {
  std::vector<float> input_norm, post_attention_norm;
  PackedLinear qkv, o, gate_up, down;
};

void check_config(const ModelConfig& config, const std::string& path) {
  const auto refuse = [&](const std::string& what) { throw invalid_argument(path + ": " + what, "model"); };
  if (config.layers < 1) refuse(fmt::format("{} layers; at least 1 is needed", config.layers));
  if (config.hidden_act != "silu")
    refuse(fmt::format("hidden_act {} is not supported; Llama has silu", config.hidden_act));
  if (config.attention_bias) refuse("attention_bias = true is not supported");
  if (config.mlp_bias) refuse("mlp_bias = true is not supported");
  if (config.kv_heads < 1 || config.heads % config.kv_heads != 0) {
    refuse(fmt::format("{} attention heads can't be shared by {} key-value heads", config.heads, config.kv_heads));
  }
  if (config.head_dim % 8 != 0) refuse(fmt::format("head_dim {} is not a multiple of 8", config.head_dim));
}

// Row `row` of src becomes row i of dst, for every i. dst may be src: rows ascend.
void gather_rows(const float* src, std::span<const int32_t> rows, float* dst, int64_t n) {
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memmove(dst + static_cast<int64_t>(i) * n, src + rows[i] * n, static_cast<size_t>(n) * sizeof(float));
  }
}

class Llama final : public Model {
 public:
  Llama(const Checkpoint& checkpoint, const ModelOptions& options, ThreadPool& pool)
      : config_(checkpoint.config()),
        max_tokens_(options.max_tokens),
        inv_freq_(rope_inv_freq(config_.rope, config_.head_dim)),
        rope_scale_(rope_attention_factor(config_.rope)) {
    WeightLoader load(checkpoint, options, pool);
    const int64_t hidden = config_.hidden_size;
    for (int64_t i = 0; i < config_.layers; ++i) {
      const std::string p = fmt::format("model.layers.{}.", i);
      Layer& layer = layers_.emplace_back();
      layer.input_norm = load.vector(p + "input_layernorm.weight", hidden);
      layer.qkv = load.linear({{p + "self_attn.q_proj.weight", q_size()},
                               {p + "self_attn.k_proj.weight", kv_size()},
                               {p + "self_attn.v_proj.weight", kv_size()}},
                              hidden);
      layer.o = load.linear({{p + "self_attn.o_proj.weight", hidden}}, q_size());
      layer.post_attention_norm = load.vector(p + "post_attention_layernorm.weight", hidden);
      layer.gate_up = load.linear({{p + "mlp.gate_proj.weight", config_.intermediate_size},
                                   {p + "mlp.up_proj.weight", config_.intermediate_size}},
                                  hidden);
      layer.down = load.linear({{p + "mlp.down_proj.weight", hidden}}, config_.intermediate_size);
    }
    norm_ = load.vector("model.norm.weight", hidden);
    if (config_.tie_word_embeddings) {
      head_ = load.linear({{"model.embed_tokens.weight", config_.vocab_size}}, hidden);
    } else {
      embedding_ = load.embedding("model.embed_tokens.weight", config_.vocab_size, hidden);
      head_ = load.linear({{"lm_head.weight", config_.vocab_size}}, hidden);
    }
  }

  const ModelConfig& config() const override { return config_; }

  AttentionGroup attention_group() const override {
    AttentionGroup group;
    group.heads = static_cast<int32_t>(config_.heads);
    group.kv_heads = static_cast<int32_t>(config_.kv_heads);
    group.head_dim = group.v_head_dim = static_cast<int32_t>(config_.head_dim);
    group.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
    return group;
  }

  size_t weight_bytes() const override {
    size_t bytes = embedding_.bytes() + head_.bytes() + norm_.size() * sizeof(float);
    for (const Layer& layer : layers_) {
      bytes += layer.qkv.bytes() + layer.o.bytes() + layer.gate_up.bytes() + layer.down.bytes();
      bytes += (layer.input_norm.size() + layer.post_attention_norm.size()) * sizeof(float);
    }
    return bytes;
  }

  size_t workspace_bytes() const override {
    const int64_t row =
        2 * config_.hidden_size + qkv_size() + q_size() + 3 * config_.intermediate_size + config_.head_dim;
    size_t linear = head_.workspace_bytes(max_tokens_);
    for (const PackedLinear* weight : {&layers_[0].qkv, &layers_[0].o, &layers_[0].gate_up, &layers_[0].down}) {
      linear = std::max(linear, weight->workspace_bytes(max_tokens_));
    }
    constexpr size_t kAlignmentSlack = 10 * 64;
    return static_cast<size_t>(max_tokens_ * row) * sizeof(float) + linear + kAlignmentSlack;
  }

  void forward(const StepInput& input, const AttentionBackend& backend, const AttentionPlan& plan,
               std::span<const PagedKv> kv, float* logits, Workspace& workspace, ThreadPool& pool) const override {
    const auto tokens = static_cast<int64_t>(input.token_ids.size());
    const auto wanted = static_cast<int64_t>(input.logits_rows.size());
    const int64_t hidden = config_.hidden_size;
    const auto eps = static_cast<float>(config_.rms_norm_eps);
    const WorkspaceScope scope(workspace);

    auto* x = workspace.take<float>(static_cast<size_t>(tokens * hidden));  // residual stream
    auto* normed = workspace.take<float>(static_cast<size_t>(tokens * hidden));
    auto* qkv = workspace.take<float>(static_cast<size_t>(tokens * qkv_size()));
    auto* attended = workspace.take<float>(static_cast<size_t>(tokens * q_size()));
    auto* gate_up = workspace.take<float>(static_cast<size_t>(tokens * 2 * config_.intermediate_size));
    auto* activated = workspace.take<float>(static_cast<size_t>(tokens * config_.intermediate_size));
    const int64_t half = config_.head_dim / 2;
    auto* cos = workspace.take<float>(static_cast<size_t>(tokens * half));
    auto* sin = workspace.take<float>(static_cast<size_t>(tokens * half));

    embed(input.token_ids, x, pool);
    rope_angles(inv_freq_.data(), half, input.positions.data(), tokens, rope_scale_, cos, sin, pool);
    int64_t rows = tokens;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      rms_norm(x, layer.input_norm.data(), eps, normed, rows, hidden, pool);
      layer.qkv.forward(normed, hidden, qkv, qkv_size(), rows, false, workspace, pool);
      const float *k = qkv + q_size(), *v = k + kv_size();
      rope_kv_write(qkv, qkv_size(), config_.heads, k, qkv_size(), v, qkv_size(), input.attention.slots.data(), rows,
                    cos, sin, half, config_.rope.interleaved, kv[i], pool);
      backend.run(plan, {qkv, qkv_size(), config_.head_dim}, {kv[i]}, {attended, q_size(), config_.head_dim}, workspace,
                  pool);
      if (i + 1 == layers_.size() && wanted < rows) {
        // Past the last attention rows don't meet again: only those whose logits are wanted go on.
        gather_rows(x, input.logits_rows, x, hidden);
        gather_rows(attended, input.logits_rows, attended, q_size());
        rows = wanted;
        if (rows == 0) break;
      }
      layer.o.forward(attended, q_size(), x, hidden, rows, true, workspace, pool);
      rms_norm(x, layer.post_attention_norm.data(), eps, normed, rows, hidden, pool);
      layer.gate_up.forward(normed, hidden, gate_up, 2 * config_.intermediate_size, rows, false, workspace, pool);
      silu_mul(gate_up, activated, config_.intermediate_size, rows, config_.intermediate_size, pool);
      layer.down.forward(activated, config_.intermediate_size, x, hidden, rows, true, workspace, pool);
    }
    if (rows > 0) {
      rms_norm(x, norm_.data(), eps, normed, rows, hidden, pool);
      head_.forward(normed, hidden, logits, config_.vocab_size, rows, false, workspace, pool);
    }
  }

 private:
  int64_t q_size() const { return config_.heads * config_.head_dim; }
  int64_t kv_size() const { return config_.kv_heads * config_.head_dim; }
  int64_t qkv_size() const { return q_size() + 2 * kv_size(); }

  void embed(std::span<const int32_t> ids, float* x, ThreadPool& pool) const {
    const int64_t hidden = config_.hidden_size;
    if (!config_.tie_word_embeddings) return embedding_.lookup(ids, x, pool);
    for (size_t i = 0; i < ids.size(); ++i) head_.dequantize_row(ids[i], x + static_cast<int64_t>(i) * hidden);
  }

  ModelConfig config_;
  int64_t max_tokens_;
  std::vector<float> inv_freq_;
  double rope_scale_;
  std::vector<Layer> layers_;
  std::vector<float> norm_;
  EmbeddingTable embedding_;  // empty with tied embeddings: rows then come from head_
  PackedLinear head_;
};

}  // namespace

std::unique_ptr<Model> load_llama(const Checkpoint& checkpoint, const ModelOptions& options, ThreadPool& pool) {
  check_config(checkpoint.config(), checkpoint.path());
  return std::make_unique<Llama>(checkpoint, options, pool);
}

}  // namespace quire
