// The whole engine on the GPU over a small model of made-up weights: whatever way a step is computed, in a graph or
// kernel by kernel, sampled on the device or by the host, alone or beside others, the tokens are the same.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/stats.h"
#include "gpu/device.h"

namespace quire {
namespace {

// A folder with the config.json of a model, for as long as the object lives.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& intermediate_size = "768") {
    std::string name = (std::filesystem::temp_directory_path() / "quire-gpu-engine-XXXXXX").string();
    path_ = mkdtemp(name.data());
    std::ofstream(path_ / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 256,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
              "vocab_size": 1003, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": false, "torch_dtype": "float32", "eos_token_id": 1002, "intermediate_size": )"
        << intermediate_size << "}";
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<std::optional<TokenLogprobs>> logprobs;
  std::string error;
};

class GpuEngine : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = gpu::why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
    config_.model = folder_.path();
    config_.load_format = "dummy";
    config_.device = gpu::platform() == "HIP" ? "hip" : "cuda";
    config_.dtype = "float32";
    config_.max_model_len = 512;
    config_.max_num_seqs = 24;
    config_.kv_cache_memory_bytes = 64 << 20;
    config_.threads = 2;
    config_.log_stats = false;
  }

  // Twenty requests that ask for different things.
  static std::vector<GenerateRequest> requests() {
    std::vector<GenerateRequest> all;
    for (int i = 0; i < 20; ++i) {
      GenerateRequest& request = all.emplace_back();
      for (int j = 0; j < 5 + 17 * (i % 7); ++j) request.prompt_ids.push_back((i * 131 + j * 37) % 1000);
      SamplingParams& params = request.params;
      params.ignore_eos = true;
      params.max_tokens = 24 + i;
      params.seed = i;
      params.temperature = i % 4 == 0 ? 0.0 : 0.7;
      if (i % 5 == 1) params.top_k = 40;
      if (i % 5 == 2) params.top_p = 0.8;
      if (i % 6 == 3) params.repetition_penalty = 1.3;
      if (i % 7 == 4) params.logprobs = 3;
      if (i % 9 == 5) params.logit_bias = {{17, 4.0f}, {900, -3.0f}};
      if (i % 8 == 6) params.min_p = 0.2;
    }
    return all;
  }
  static Answer answer(Generation& generation) {
    Answer result;
    std::vector<GenerationEvent> events;
    while (generation.wait(events, std::chrono::seconds(60))) {
    }
    for (GenerationEvent& event : events) {
      result.error += event.error;
      if (event.token >= 0) result.tokens.push_back(event.token);
      if (event.logprobs) result.logprobs.push_back(event.logprobs);
    }
    return result;
  }
  static std::vector<Answer> together(Engine& engine) {
    std::vector<std::shared_ptr<Generation>> generations;
    for (GenerateRequest& request : requests()) generations.push_back(engine.submit(std::move(request)));
    std::vector<Answer> answers;
    for (const auto& generation : generations) answers.push_back(answer(*generation));
    return answers;
  }
  static std::vector<Answer> one_by_one(Engine& engine) {
    std::vector<Answer> answers;
    for (GenerateRequest& request : requests()) answers.push_back(answer(*engine.submit(std::move(request))));
    return answers;
  }
  static void expect_same(const std::vector<Answer>& a, const std::vector<Answer>& b, const char* what) {
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].error, "") << what << " " << i;
      EXPECT_EQ(a[i].tokens, b[i].tokens) << what << " " << i;
      ASSERT_EQ(a[i].logprobs.size(), b[i].logprobs.size());
      for (size_t j = 0; j < a[i].logprobs.size(); ++j) {
        EXPECT_NEAR(a[i].logprobs[j]->token.logprob, b[i].logprobs[j]->token.logprob, 1e-4) << what << " " << i;
        EXPECT_EQ(a[i].logprobs[j]->top.size(), 3u);
      }
    }
  }
  static void expect_quiet(Engine& engine) {
    const EngineMetrics::Snapshot s = engine.metrics().snapshot();
    EXPECT_EQ(s.running + s.waiting, 0);
    EXPECT_EQ(s.free_blocks, s.total_blocks);
  }

  ModelFolder folder_;
  EngineConfig config_;
};

// The CPU draws the same numbers from logits that differ in their last bits.
TEST_F(GpuEngine, TokensAreThoseOfTheCpuAndOfEveryOtherWay) {
  EngineConfig cpu = config_;
  cpu.device = "cpu";
  Engine reference(cpu);
  const std::vector<Answer> expected = one_by_one(reference);
  {
    Engine engine(config_);
    expect_same(together(engine), expected, "one batch");
    expect_same(together(engine), expected, "the same again, from graphs and the prefix cache");
    expect_same(one_by_one(engine), expected, "one by one");
    expect_quiet(engine);
  }
  {
    EngineConfig config = config_;
    config.enforce_eager = true;
    config.kv_cache_layout = "shuffle";
    config.max_num_batched_tokens = 33;
    Engine engine(config);
    expect_same(together(engine), expected, "no graphs, shuffle layout, chunks of 33");
  }
  {
    EngineConfig config = config_;
    config.num_gpu_blocks_override = 40;  // too few for all: some are preempted
    Engine engine(config);
    expect_same(together(engine), expected, "few blocks");
    EXPECT_GT(engine.metrics().snapshot().preemptions, 0);
    expect_quiet(engine);
  }
}

// So many log-probabilities that the device's buffers don't hold them, in steps that are padded: the host samples.
TEST_F(GpuEngine, ManyLogprobsAreTakenByTheHost) {
  config_.max_logprobs = -1;
  Engine engine(config_);
  std::vector<std::shared_ptr<Generation>> generations;
  for (int i = 0; i < 11; ++i) {
    GenerateRequest request;
    request.prompt_ids = {1, 2, 3 + i};
    request.params.temperature = 0;
    request.params.ignore_eos = true;
    request.params.max_tokens = 6;
    request.params.logprobs = i % 2 == 0 ? 700 : 600;  // for 11 rows they hold them, for 16 not
    generations.push_back(engine.submit(std::move(request)));
  }
  for (size_t i = 0; i < generations.size(); ++i) {
    const Answer got = answer(*generations[i]);
    EXPECT_EQ(got.error, "");
    ASSERT_EQ(got.logprobs.size(), 6u);
    for (size_t j = 0; j < 6; ++j) {
      EXPECT_EQ(got.logprobs[j]->top.size(), i % 2 == 0 ? 700u : 600u);
      EXPECT_EQ(got.logprobs[j]->top[0].id, got.tokens[j]);
    }
  }
}

TEST_F(GpuEngine, PromptLogprobsAndStopsAreThoseOfTheCpu) {
  EngineConfig cpu = config_;
  cpu.device = "cpu";
  Engine reference(cpu), engine(config_);
  const auto ask = [](Engine& of) {
    GenerateRequest request;
    for (int i = 0; i < 70; ++i) request.prompt_ids.push_back(i * 13 % 1000);
    request.params.temperature = 0;
    request.params.max_tokens = 12;
    request.params.prompt_logprobs = 2;
    request.params.n = 1;
    return of.submit(std::move(request));
  };
  const auto expected = ask(reference), got = ask(engine);
  EXPECT_EQ(answer(*got).tokens, answer(*expected).tokens);
  ASSERT_EQ(got->prompt_logprobs().size(), expected->prompt_logprobs().size());
  for (size_t i = 1; i < got->prompt_logprobs().size(); ++i) {
    const TokenLogprobs &a = *got->prompt_logprobs()[i], &b = *expected->prompt_logprobs()[i];
    EXPECT_EQ(a.token.id, b.token.id);
    EXPECT_NEAR(a.token.logprob, b.token.logprob, 1e-4);
    EXPECT_EQ(a.top.size(), 2u);
  }
}

// Beside requests for text, whole and in chunks, with and without the prefix cache.
TEST_F(GpuEngine, EmbeddingsAreThoseOfTheCpu) {
  EngineConfig cpu = config_;
  cpu.device = "cpu";
  const auto ask = [](Engine& engine) {
    std::vector<std::shared_ptr<Generation>> generations;
    for (int i = 0; i < 24; ++i) {
      GenerateRequest request;
      for (int j = 0; j < 1 + 29 * (i % 9); ++j) request.prompt_ids.push_back((i / 3 * 131 + j * 37) % 1000);
      request.pooling = static_cast<Pooling>(i % 3);
      request.params.max_tokens = 30;
      request.params.ignore_eos = true;
      generations.push_back(engine.submit(std::move(request)));
    }
    std::vector<std::vector<float>> embeddings;
    for (const auto& generation : generations) {
      EXPECT_EQ(answer(*generation).error, "");
      embeddings.emplace_back(generation->embedding().begin(), generation->embedding().end());
    }
    return embeddings;
  };
  Engine reference(cpu);
  const auto expected = ask(reference);
  const auto expect_close = [&](const std::vector<std::vector<float>>& got, float tolerance, const char* what) {
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].size(), i % 3 == 0 ? 0u : 256u);
      for (size_t j = 0; j < got[i].size(); ++j) ASSERT_NEAR(got[i][j], expected[i][j], tolerance) << what << " " << i;
    }
  };
  // States after a norm have a root mean square of 1: float32 over three layers, then half precision's 11 bits.
  constexpr float kFloat = 1e-4f, kHalf = 2e-2f;
  {
    Engine engine(config_);
    expect_close(ask(engine), kFloat, "one batch");
    expect_close(ask(engine), kFloat, "the same again, with the prefix cache");
    expect_quiet(engine);
  }
  config_.max_num_batched_tokens = 33;
  {
    Engine engine(config_);
    expect_close(ask(engine), kFloat, "chunks of 33");
  }
  config_.dtype = "float16";
  {
    Engine engine(config_);
    expect_close(ask(engine), kHalf, "float16");
  }
}

TEST_F(GpuEngine, RefusesWhatItCannotHoldOrRun) {
  const auto message = [](EngineConfig config) {
    try {
      const Engine engine(std::move(config));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EngineConfig config = config_;
  config.kv_cache_memory_bytes = int64_t{1} << 50;
  EXPECT_NE(message(config).find("--kv-cache-memory-bytes"), std::string::npos) << message(config);
  config = config_;
  config.kv_cache_memory_bytes = 0;
  config.gpu_memory_utilization = 0.001;
  EXPECT_NE(message(config).find("--gpu-memory-utilization"), std::string::npos) << message(config);
  const ModelFolder odd("172");
  config = config_;
  config.model = odd.path();
  EXPECT_NE(message(config).find("intermediate_size 172"), std::string::npos) << message(config);
}

}  // namespace
}  // namespace quire
