#include "model/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

struct Layer {
  const float *input_norm, *post_attention_norm;
  std::unique_ptr<LinearLayer> qkv, o, gate_up, down;
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

class Llama final : public Model {
 public:
  Llama(const Checkpoint& checkpoint, const ModelOptions& options, std::unique_ptr<ModelDevice> owned_device)
      : config_(checkpoint.config()),
        max_tokens_(options.max_tokens),
        max_logits_rows_(options.max_logits_rows),
        device_(std::move(owned_device)),
        inv_freq_(device_->store(rope_inv_freq(config_.rope, config_.head_dim))),
        rope_scale_(rope_attention_factor(config_.rope)) {
    ModelDevice& device = *device_;
    const int64_t hidden = config_.hidden_size;
    device.expect(needs());
    for (int64_t i = 0; i < config_.layers; ++i) {
      const std::string p = fmt::format("model.layers.{}.", i);
      Layer& layer = layers_.emplace_back();
      layer.input_norm = device.load_vector(p + "input_layernorm.weight", hidden);
      layer.qkv = device.load_linear({{p + "self_attn.q_proj.weight", q_size()},
                                      {p + "self_attn.k_proj.weight", kv_size()},
                                      {p + "self_attn.v_proj.weight", kv_size()}},
                                     hidden);
      layer.o = device.load_linear({{p + "self_attn.o_proj.weight", hidden}}, q_size());
      layer.post_attention_norm = device.load_vector(p + "post_attention_layernorm.weight", hidden);
      layer.gate_up = device.load_linear({{p + "mlp.gate_proj.weight", config_.intermediate_size},
                                          {p + "mlp.up_proj.weight", config_.intermediate_size}},
                                         hidden);
      layer.down = device.load_linear({{p + "mlp.down_proj.weight", hidden}}, config_.intermediate_size);
    }
    norm_ = device.load_vector("model.norm.weight", hidden);
    const char* embedding = "model.embed_tokens.weight";
    head_ =
        device.load_linear({{config_.tie_word_embeddings ? embedding : "lm_head.weight", config_.vocab_size}}, hidden);
    read_bytes_ = device.weight_bytes();  // of the table of embeddings a step needs a few rows
    embedding_ = config_.tie_word_embeddings ? device.embedding_of(*head_)
                                             : device.load_embedding(embedding, config_.vocab_size, hidden);
    device.finish_loading();
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

  size_t weight_bytes() const override { return device_->weight_bytes(); }
  DType hidden_dtype() const override { return device_->dtype(); }

  Work work() const override {
    const auto product = [](int64_t in, int64_t out) {
      return 2.0 * static_cast<double>(in) * static_cast<double>(out);
    };
    const int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
    const double qkv = product(hidden, qkv_size());
    const double rest = product(q_size(), hidden) + product(hidden, 2 * intermediate) + product(intermediate, hidden);
    // The rest of the last layer is for rows of logits.
    return {static_cast<double>(read_bytes_),
            static_cast<double>(config_.layers) * qkv + static_cast<double>(config_.layers - 1) * rest,
            rest + product(hidden, config_.vocab_size)};
  }

  size_t workspace_bytes() const override {
    size_t linear = head_->workspace_bytes(max_logits_rows_);
    for (const auto* weight : {&layers_[0].qkv, &layers_[0].o, &layers_[0].gate_up, &layers_[0].down}) {
      linear = std::max(linear, (*weight)->workspace_bytes(max_tokens_));
    }
    constexpr size_t kAlignmentSlack = 12 * Workspace::kAlignment;
    const int64_t kept = std::min(max_tokens_, max_logits_rows_);
    return static_cast<size_t>(max_tokens_ * row_bytes() + kept * kept_row_bytes()) + linear + kAlignmentSlack;
  }

  void forward(const StepInput& input, const AttentionBackend& backend, const AttentionPlan& plan,
               std::span<const PagedKv> kv, float* logits, Workspace& workspace, ThreadPool& pool) const override {
    const ModelDevice& device = *device_;
    const DType dtype = device.dtype();
    const int64_t element = block_bytes(dtype), hidden = config_.hidden_size;
    const auto tokens = static_cast<int64_t>(input.token_ids.size());
    const auto wanted = static_cast<int64_t>(input.logits_rows.size());
    const auto hidden_wanted = static_cast<int64_t>(input.hidden_rows.size());
    const auto eps = static_cast<float>(config_.rms_norm_eps);
    const WorkspaceScope scope(workspace);
    const auto take = [&](int64_t rows, int64_t n) {
      return workspace.take<std::byte>(static_cast<size_t>(rows * n * element));
    };
    const auto take_f32 = [&](int64_t rows, int64_t n) { return workspace.take<float>(static_cast<size_t>(rows * n)); };

    float* x = take_f32(tokens, hidden);  // residual stream
    std::byte* normed = take(tokens, hidden);
    std::byte* qkv = take(tokens, qkv_size());
    std::byte* attended = take(tokens, q_size());
    std::byte* gate_up = take(tokens, 2 * config_.intermediate_size);
    std::byte* activated = take(tokens, config_.intermediate_size);
    const int64_t half = config_.head_dim / 2;
    float *cos = take_f32(tokens, half), *sin = take_f32(tokens, half);

    embedding_->lookup(input.token_ids.data(), tokens, x);
    device.rope_angles(inv_freq_, half, input.positions.data(), tokens, rope_scale_, cos, sin);
    // Past the last attention rows don't meet again: if they are few, only those that are wanted go on, first those of
    // logits. (There are many where all tokens' states are pooled.)
    const int64_t few = std::min(wanted + hidden_wanted, tokens);
    const bool keep_few = few < tokens && few <= max_logits_rows_;
    int64_t rows = tokens;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      if (!layer.qkv->forward_normed({x, layer.input_norm, eps}, qkv, rows, workspace)) {
        device.rms_norm(x, layer.input_norm, eps, normed, rows, hidden);
        layer.qkv->forward(normed, qkv, rows, workspace);
      }
      device.rope_kv_write(qkv, config_.heads, input.attention.slots.data(), rows, cos, sin, config_.rope.interleaved,
                           kv[i]);
      backend.run(plan, {qkv, qkv_size(), config_.head_dim, dtype}, {kv[i]},
                  {attended, q_size(), config_.head_dim, dtype}, workspace, pool);
      if (i + 1 == layers_.size() && keep_few) {
        if (few == 0) return;
        float* kept = take_f32(few, hidden);
        std::byte* kept_attended = take(few, q_size());
        gather_wanted(input, std::exchange(x, kept), kept, hidden * 4);
        gather_wanted(input, std::exchange(attended, kept_attended), kept_attended, q_size() * element);
        rows = few;
      }
      layer.o->forward_f32(attended, x, rows, true, workspace);
      mlp(layer, x, rows, {normed, gate_up, activated}, workspace);
    }
    if (hidden_wanted == 0) {
      device.rms_norm(x, norm_, eps, normed, rows, hidden);
    } else if (keep_few) {
      device.rms_norm(x, norm_, eps, normed, wanted, hidden);
      device.rms_norm(x + wanted * hidden, norm_, eps, input.hidden, hidden_wanted, hidden);
    } else if (hidden_wanted == tokens) {
      device.rms_norm(x, norm_, eps, input.hidden, tokens, hidden);
    } else {
      device.rms_norm(x, norm_, eps, normed, tokens, hidden);
      device.gather_rows(normed, input.hidden_rows.data(), input.hidden, hidden_wanted, hidden * element);
      if (wanted == 0) return;
      std::byte* of_logits = take(wanted, hidden);
      device.gather_rows(std::exchange(normed, of_logits), input.logits_rows.data(), of_logits, wanted,
                         hidden * element);
    }
    if (wanted > 0) head_->forward_f32(normed, logits, wanted, false, workspace);
  }

 private:
  struct MlpScratch {
    std::byte *normed, *gate_up, *activated;
  };
  // x += mlp(rms_norm(x)), by the fused ops that the device has.
  void mlp(const Layer& layer, float* x, int64_t rows, const MlpScratch& s, Workspace& workspace) const {
    const auto eps = static_cast<float>(config_.rms_norm_eps);
    if (!layer.gate_up->forward_normed({x, layer.post_attention_norm, eps}, s.gate_up, rows, workspace)) {
      device_->rms_norm(x, layer.post_attention_norm, eps, s.normed, rows, config_.hidden_size);
      if (layer.gate_up->forward_silu_mul(s.normed, s.activated, rows)) {
        layer.down->forward_f32(s.activated, x, rows, true, workspace);
        return;
      }
      layer.gate_up->forward(s.normed, s.gate_up, rows, workspace);
    }
    if (layer.down->add_silu_mul(s.gate_up, x, rows, workspace)) return;
    device_->silu_mul(s.gate_up, s.activated, rows, config_.intermediate_size);
    layer.down->forward_f32(s.activated, x, rows, true, workspace);
  }

  // y: the rows whose logits are wanted, then those whose hidden states are.
  void gather_wanted(const StepInput& input, const void* x, void* y, int64_t row_bytes) const {
    const auto logits = static_cast<int64_t>(input.logits_rows.size());
    const auto states = static_cast<int64_t>(input.hidden_rows.size());
    if (logits > 0) device_->gather_rows(x, input.logits_rows.data(), y, logits, row_bytes);
    if (states == 0) return;
    device_->gather_rows(x, input.hidden_rows.data(), static_cast<std::byte*>(y) + logits * row_bytes, states,
                         row_bytes);
  }
  int64_t q_size() const { return config_.heads * config_.head_dim; }
  int64_t kv_size() const { return config_.kv_heads * config_.head_dim; }
  int64_t qkv_size() const { return q_size() + 2 * kv_size(); }
  // Of the workspace, for each row of a step, and for each row of which logits are wanted.
  int64_t row_bytes() const {
    const int64_t element = block_bytes(device_->dtype());
    return config_.hidden_size * (4 + element) + config_.head_dim * 4 +
           element * (qkv_size() + q_size() + 3 * config_.intermediate_size);
  }
  int64_t kept_row_bytes() const { return config_.hidden_size * 4 + q_size() * block_bytes(device_->dtype()); }

  ModelDevice::Needs needs() const {
    const auto d = [](int64_t n) { return static_cast<double>(n); };
    const double hidden = d(config_.hidden_size), layers = d(config_.layers), vocab = d(config_.vocab_size);
    const double of_layer = hidden * (d(qkv_size()) + d(q_size()) + 3 * d(config_.intermediate_size));
    ModelDevice::Needs needs;
    needs.matrix_elements = layers * of_layer + vocab * hidden * (config_.tie_word_embeddings ? 1 : 2);
    needs.vector_elements = hidden * (2 * layers + 1);
    needs.step_bytes = d(max_tokens_) * d(row_bytes()) +
                       d(std::min(max_tokens_, max_logits_rows_)) * d(kept_row_bytes()) +
                       d(max_logits_rows_) * vocab * sizeof(float);
    return needs;
  }

  ModelConfig config_;
  int64_t max_tokens_, max_logits_rows_;
  std::unique_ptr<ModelDevice> device_;
  const float* inv_freq_;
  double rope_scale_;
  std::vector<Layer> layers_;
  const float* norm_;
  size_t read_bytes_ = 0;
  std::unique_ptr<LinearLayer> head_;
  std::unique_ptr<EmbeddingLayer> embedding_;
};

}  // namespace

std::unique_ptr<Model> load_llama(const Checkpoint& checkpoint, const ModelOptions& options,
                                  std::unique_ptr<ModelDevice> device) {
  check_config(checkpoint.config(), checkpoint.path());
  return std::make_unique<Llama>(checkpoint, options, std::move(device));
}

}  // namespace quire
