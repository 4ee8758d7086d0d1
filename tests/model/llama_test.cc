// The whole forward pass against a naive one in double: every phase, both layouts, both rope styles, tied and untied
// heads.
#include "model/llama.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "attention/registry.h"
#include "base/error.h"
#include "model/cpu_device.h"
#include "model/random_checkpoint.h"

namespace quire {
namespace {

ModelConfig small_config() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.hidden_size = 96;
  config.layers = 2;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.intermediate_size = 160;
  config.vocab_size = 211;
  config.max_position = 128;
  return config;
}

using Vector = std::vector<double>;

// Logits of every position of one sequence, in double, straight from the papers.
class NaiveLlama {
 public:
  explicit NaiveLlama(const RandomCheckpoint& checkpoint) : checkpoint_(checkpoint), config_(checkpoint.config()) {}

  std::vector<Vector> logits(const std::vector<int32_t>& ids) const {
    std::vector<Vector> x;
    const auto& embedding = checkpoint_.values("model.embed_tokens.weight");
    for (int32_t id : ids) {
      x.emplace_back(embedding.begin() + id * config_.hidden_size, embedding.begin() + (id + 1) * config_.hidden_size);
    }
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string p = "model.layers." + std::to_string(layer) + ".";
      std::vector<Vector> q, k, v;
      for (size_t i = 0; i < x.size(); ++i) {
        const Vector h = norm(x[i], p + "input_layernorm.weight");
        q.push_back(rotate(product(p + "self_attn.q_proj.weight", h), static_cast<double>(i)));
        k.push_back(rotate(product(p + "self_attn.k_proj.weight", h), static_cast<double>(i)));
        v.push_back(product(p + "self_attn.v_proj.weight", h));
      }
      for (size_t i = 0; i < x.size(); ++i) {
        add(x[i], product(p + "self_attn.o_proj.weight", attend(q[i], k, v, i)));
        const Vector h = norm(x[i], p + "post_attention_layernorm.weight");
        Vector gate = product(p + "mlp.gate_proj.weight", h);
        const Vector up = product(p + "mlp.up_proj.weight", h);
        for (size_t j = 0; j < gate.size(); ++j) gate[j] = gate[j] / (1 + std::exp(-gate[j])) * up[j];
        add(x[i], product(p + "mlp.down_proj.weight", gate));
      }
    }
    std::vector<Vector> logits;
    for (const Vector& row : x) {
      logits.push_back(product(config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
                               norm(row, "model.norm.weight")));
    }
    return logits;
  }

 private:
  static void add(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  Vector norm(const Vector& x, const std::string& name) const {
    const auto& weight = checkpoint_.values(name);
    const double mean = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size());
    Vector y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / std::sqrt(mean + config_.rms_norm_eps) * weight[i];
    return y;
  }
  Vector product(const std::string& name, const Vector& x) const {
    const auto& weight = checkpoint_.values(name);
    Vector y(weight.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += static_cast<double>(weight[o * x.size() + i]) * x[i];
    }
    return y;
  }
  Vector rotate(Vector x, double position) const {
    const auto d = static_cast<size_t>(config_.head_dim), half = d / 2;
    const std::vector<float> scaled = rope_inv_freq(config_.rope, config_.head_dim);
    const double magnitude = rope_attention_factor(config_.rope);
    for (size_t head = 0; head < x.size() / d; ++head) {
      for (size_t i = 0; i < half; ++i) {
        const double plain = std::pow(config_.rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
        const double angle = position * (config_.rope.type == "default" ? plain : double{scaled[i]});
        double& a = x[head * d + (config_.rope.interleaved ? 2 * i : i)];
        double& b = x[head * d + (config_.rope.interleaved ? 2 * i + 1 : i + half)];
        const double a0 = a;
        a = magnitude * (a0 * std::cos(angle) - b * std::sin(angle));
        b = magnitude * (b * std::cos(angle) + a0 * std::sin(angle));
      }
    }
    return x;
  }
  Vector attend(const Vector& q, const std::vector<Vector>& k, const std::vector<Vector>& v, size_t last) const {
    const auto d = static_cast<size_t>(config_.head_dim);
    Vector out(q.size());
    for (size_t head = 0; head < static_cast<size_t>(config_.heads); ++head) {
      const size_t shared = head / static_cast<size_t>(config_.heads / config_.kv_heads) * d;
      Vector weight(last + 1);
      double sum = 0;
      for (size_t j = 0; j <= last; ++j) {
        double dot = 0;
        for (size_t i = 0; i < d; ++i) dot += q[head * d + i] * k[j][shared + i];
        sum += weight[j] = std::exp(dot / std::sqrt(static_cast<double>(d)));
      }
      for (size_t j = 0; j <= last; ++j) {
        for (size_t i = 0; i < d; ++i) out[head * d + i] += weight[j] / sum * v[j][shared + i];
      }
    }
    return out;
  }

  const RandomCheckpoint& checkpoint_;
  const ModelConfig& config_;
};

// One sequence with blocks of its own, fed to the model in chunks of any length.
class Session {
 public:
  Session(const RandomCheckpoint& checkpoint, KvLayout layout) {
    ModelOptions options;
    options.dtype = ComputeDType::kF32;
    options.max_tokens = 64;
    model_ = load_model(checkpoint, options, make_cpu_model_device(checkpoint, options, pool_));
    AttentionGroup group = model_->attention_group();
    group.layout = layout;
    group.block_size = kBlockSize;
    backend_ = make_attention_backend("PHASED", group);
    plan_ = backend_->make_plan(group, 1, 64);
    workspace_ = std::make_unique<Workspace>(model_->workspace_bytes() + backend_->workspace_bytes(group, 1, 64));
    const auto& config = model_->config();
    for (int64_t i = 0; i < config.layers; ++i) {
      PagedKv kv = kv_of(group, static_cast<int64_t>(blocks_.size()));
      kv.k = memory_.emplace_back(static_cast<size_t>(k_plane_bytes(kv)), std::byte{0xff}).data();
      kv.v = memory_.emplace_back(static_cast<size_t>(v_plane_bytes(kv)), std::byte{0xff}).data();
      kv_.push_back(kv);
    }
  }

  // Logits of the wanted rows of the next ids.size() tokens.
  std::vector<float> step(const std::vector<int32_t>& ids, const std::vector<int32_t>& wanted) {
    const auto n = static_cast<int32_t>(ids.size());
    std::vector<int32_t> positions(ids.size()), offsets = {0, n}, kv_lens = {context_ + n}, rows = {0};
    std::vector<int64_t> slots(ids.size());
    for (int32_t i = 0; i < n; ++i) {
      positions[static_cast<size_t>(i)] = context_ + i;
      slots[static_cast<size_t>(i)] =
          int64_t{blocks_[static_cast<size_t>((context_ + i) / kBlockSize)]} * kBlockSize + (context_ + i) % kBlockSize;
    }
    StepInput input{ids, positions, wanted, {}};
    input.attention = {offsets, kv_lens, blocks_.data(), static_cast<int64_t>(blocks_.size()), rows, slots, {}, {}, {}};
    const PhaseRange whole{0, 1, 0, n, n, context_ + n}, after{1, 0, n, 0, 0, 0};
    const Phase phase = phase_of(context_, n, 1);
    input.attention.decode = phase == Phase::kDecode ? whole : PhaseRange{};
    input.attention.extend = phase == Phase::kExtend ? whole : (phase == Phase::kDecode ? after : PhaseRange{});
    input.attention.prefill = phase == Phase::kPrefill ? whole : after;
    backend_->plan(input.attention, *plan_);
    std::vector<float> logits(wanted.size() * static_cast<size_t>(model_->config().vocab_size));
    model_->forward(input, *backend_, *plan_, kv_, logits.data(), *workspace_, pool_);
    context_ += n;
    return logits;
  }

 private:
  static constexpr int32_t kBlockSize = 16;
  ThreadPool pool_{2};
  std::unique_ptr<Model> model_;
  std::unique_ptr<AttentionBackend> backend_;
  std::unique_ptr<AttentionPlan> plan_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<int32_t> blocks_ = {5, 2, 7, 0, 3, 1, 6, 4};
  std::vector<std::vector<std::byte>> memory_;
  std::vector<PagedKv> kv_;
  int32_t context_ = 0;
};

std::vector<int32_t> some_ids(int n, int64_t vocab) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>((i * 7919 + 13) % vocab));
  return ids;
}

class LlamaTest : public testing::TestWithParam<std::tuple<KvLayout, bool, bool>> {};

TEST_P(LlamaTest, PrefillExtendAndDecodeEqualANaiveForward) {
  const auto [layout, interleaved, tied] = GetParam();
  ModelConfig config = small_config();
  config.rope.interleaved = interleaved;
  config.tie_word_embeddings = tied;
  const RandomCheckpoint checkpoint(config);
  const auto ids = some_ids(50, config.vocab_size);
  const auto expected = NaiveLlama(checkpoint).logits(ids);

  Session session(checkpoint, layout);
  std::vector<float> logits;
  for (const auto& [begin, end] : std::vector<std::pair<int, int>>{{0, 23}, {23, 40}, {40, 41}, {41, 42}, {42, 50}}) {
    std::vector<int32_t> wanted(static_cast<size_t>(end - begin));
    std::iota(wanted.begin(), wanted.end(), 0);
    const auto part = session.step({ids.begin() + begin, ids.begin() + end}, wanted);
    logits.insert(logits.end(), part.begin(), part.end());
  }
  // f32 rounding over two layers of sums of up to 160 terms, on logits of order 10: 1e-4 leaves a factor of ten.
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t j = 0; j < expected[i].size(); ++j) {
      ASSERT_NEAR(logits[i * expected[i].size() + j], expected[i][j], 3e-4) << "position " << i << ", token " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(LayoutsRopesHeads, LlamaTest,
                         testing::Combine(testing::Values(KvLayout::kPlain, KvLayout::kShuffle), testing::Bool(),
                                          testing::Bool()));

TEST(Llama, YarnScalesCosinesAndSines) {
  ModelConfig config = small_config();
  config.rope.type = "yarn";
  config.rope.factor = 16.0;
  config.rope.original_max_position = 64;
  const RandomCheckpoint checkpoint(config);
  const auto ids = some_ids(20, config.vocab_size);
  const auto expected = NaiveLlama(checkpoint).logits(ids);
  const auto last = Session(checkpoint, KvLayout::kPlain).step(ids, {19});
  for (size_t j = 0; j < last.size(); ++j) ASSERT_NEAR(last[j], expected[19][j], 3e-4) << j;
}

TEST(Llama, LogitsOfWantedRowsDoNotDependOnTheOthers) {
  const RandomCheckpoint checkpoint(small_config());
  const auto ids = some_ids(30, 211);
  std::vector<int32_t> all(30);
  std::iota(all.begin(), all.end(), 0);
  const auto every = Session(checkpoint, KvLayout::kPlain).step(ids, all);
  const auto two = Session(checkpoint, KvLayout::kPlain).step(ids, {4, 29});
  EXPECT_TRUE(std::equal(two.begin(), two.begin() + 211, every.begin() + 4 * 211));
  EXPECT_TRUE(std::equal(two.begin() + 211, two.end(), every.begin() + 29 * 211));
  EXPECT_TRUE(Session(checkpoint, KvLayout::kPlain).step(ids, {}).empty());
}

// Takes nothing: it is told what a model needs and refuses it.
class FullDevice final : public ModelDevice {
 public:
  explicit FullDevice(Needs& needs) : needs_(needs) {}
  void expect(const Needs& needs) const override {
    needs_ = needs;
    throw Error(ErrorKind::kResourceExhausted, "full");
  }
  DType dtype() const override { return DType::kBF16; }
  size_t weight_bytes() const override { return 0; }
  std::unique_ptr<LinearLayer> load_linear(const std::vector<Part>&, int64_t) override { return fail(), nullptr; }
  std::unique_ptr<EmbeddingLayer> load_embedding(const std::string&, int64_t, int64_t) override {
    return fail(), nullptr;
  }
  std::unique_ptr<EmbeddingLayer> embedding_of(const LinearLayer&) override { return fail(), nullptr; }
  const float* load_vector(const std::string&, int64_t) override { return fail(), nullptr; }
  const float* store(std::vector<float>) override { return nullptr; }
  void rms_norm(const float*, const float*, float, void*, int64_t, int64_t) const override {}
  void rope_angles(const float*, int64_t, const int32_t*, int64_t, double, float*, float*) const override {}
  void rope_kv_write(void*, int64_t, const int64_t*, int64_t, const float*, const float*, bool,
                     const PagedKv&) const override {}
  void silu_mul(const void*, void*, int64_t, int64_t) const override {}
  void gather_rows(const void*, const int32_t*, void*, int64_t, int64_t) const override {}

 private:
  static void fail() { ADD_FAILURE() << "weights are loaded"; }
  Needs& needs_;
};

TEST(Llama, SaysWhatItNeedsBeforeItLoads) {
  for (const bool tied : {true, false}) {
    ModelConfig config = small_config();
    config.tie_word_embeddings = tied;
    const RandomCheckpoint checkpoint(config);
    ModelDevice::Needs needs;
    ModelOptions options;
    options.max_tokens = 100;
    options.max_logits_rows = 10;
    EXPECT_THROW(load_model(checkpoint, options, std::make_unique<FullDevice>(needs)), Error);
    EXPECT_EQ((needs.matrix_elements + needs.vector_elements) * 4, static_cast<double>(checkpoint.weight_bytes()));
    EXPECT_EQ(needs.vector_elements, static_cast<double>(config.hidden_size * (2 * config.layers + 1)));
    // Residual stream, gate and up of each row, logits of some.
    EXPECT_GT(needs.step_bytes, static_cast<double>(100 * (4 * config.hidden_size + 4 * config.intermediate_size) +
                                                    10 * 4 * config.vocab_size));
    EXPECT_LT(needs.step_bytes, 1e6);
  }
}

TEST(Llama, RefusesWhatItCannotRun) {
  ThreadPool pool(1);
  const auto message = [&](const Checkpoint& checkpoint) {
    try {
      const ModelOptions options{ComputeDType::kF32, 16, 16, {}};
      load_model(checkpoint, options, make_cpu_model_device(checkpoint, options, pool));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  ModelConfig config = small_config();
  RandomCheckpoint missing(config);
  missing.erase("model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(message(missing), "random: tensor model.layers.1.mlp.up_proj.weight is missing");
  config.architecture = "MambaForCausalLM";
  EXPECT_EQ(message(RandomCheckpoint(config)),
            "random: architecture MambaForCausalLM is not supported; there are: LlamaForCausalLM");
  config = small_config();
  config.heads = 7;
  EXPECT_NE(message(RandomCheckpoint(config)).find("7 attention heads can't be shared by 2"), std::string::npos);
}

}  // namespace
}  // namespace quire
