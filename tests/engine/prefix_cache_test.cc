// The prefix cache as a client of the whole engine sees it: answers with and without it are the same, bit for bit.
// vllm#9972: a prompt that is wholly cached; vllm#8268: prompt log-probabilities; vllm#54296: tables filled to the end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/random_checkpoint.h"

namespace quire {
namespace {

constexpr int64_t kMaxLen = 128;

// A small random model in a folder, for the time of the tests.
class ModelFolder {
 public:
  ModelFolder() : path_(std::filesystem::temp_directory_path() / ("quire-prefix-cache-" + std::to_string(getpid()))) {
    ModelConfig config;
    config.architecture = "LlamaForCausalLM";
    config.hidden_size = 64;
    config.layers = 2;
    config.heads = 4;
    config.kv_heads = 2;
    config.head_dim = 16;
    config.intermediate_size = 96;
    config.vocab_size = 200;
    config.max_position = kMaxLen;
    config.tie_word_embeddings = true;
    std::filesystem::create_directory(path_);
    write_config(config);
    write_weights(RandomCheckpoint(config), config.layers);
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  std::string path() const { return path_.string(); }

 private:
  void write_config(const ModelConfig& config) const {
    const nlohmann::json json = {{"architectures", {config.architecture}},
                                 {"hidden_size", config.hidden_size},
                                 {"num_hidden_layers", config.layers},
                                 {"num_attention_heads", config.heads},
                                 {"num_key_value_heads", config.kv_heads},
                                 {"head_dim", config.head_dim},
                                 {"intermediate_size", config.intermediate_size},
                                 {"vocab_size", config.vocab_size},
                                 {"max_position_embeddings", config.max_position},
                                 {"tie_word_embeddings", true},
                                 {"torch_dtype", "float32"}};
    std::ofstream(path_ / "config.json") << json.dump();
  }

  void write_weights(const RandomCheckpoint& checkpoint, int64_t layers) const {
    std::vector<std::string> names = {"model.embed_tokens.weight", "model.norm.weight"};
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (const char* part :
           {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
        names.push_back("model.layers." + std::to_string(layer) + "." + part + ".weight");
      }
    }
    nlohmann::json header;
    std::string data;
    for (const std::string& name : names) {
      const std::vector<float>& values = checkpoint.values(name);
      const size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      header[name] = {
          {"dtype", "F32"}, {"shape", checkpoint.find(name)->shape}, {"data_offsets", {begin, data.size()}}};
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    std::ofstream file(path_ / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << text << data;
  }

  std::filesystem::path path_;
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  // of the tokens
  FinishReason finish = FinishReason::kNone;
  int64_t cached_tokens = 0;
  std::vector<std::optional<TokenLogprobs>> prompt_logprobs;
};

void expect_same(const Answer& a, const Answer& b, const std::string& what) {
  EXPECT_EQ(a.tokens, b.tokens) << what;
  EXPECT_EQ(a.logprobs, b.logprobs) << what;
  EXPECT_EQ(a.finish, b.finish) << what;
}

std::vector<float> prompt_values(const Answer& answer) {
  std::vector<float> values;
  for (const auto& row : answer.prompt_logprobs) {
    if (!row) continue;
    values.push_back(row->token.logprob);
    for (const auto& entry : row->top) values.push_back(entry.logprob);
  }
  return values;
}

std::vector<int32_t> ids(int n, int salt = 0) {
  std::vector<int32_t> result;
  for (int i = 0; i < n; ++i) result.push_back((i * 37 + salt * 11 + i * i) % 200);
  return result;
}

class PrefixCaching : public testing::Test {
 protected:
  EngineConfig config(int32_t block_size = 16, bool caching = true) const {
    EngineConfig c;
    c.model = folder_.path();
    c.dtype = "float32";
    c.block_size = block_size;
    c.enable_prefix_caching = caching;
    c.num_gpu_blocks_override = 4 * kMaxLen / block_size;
    c.max_num_seqs = 8;
    c.threads = 2;
    c.log_stats = false;
    return c;
  }

  static GenerateRequest request(std::vector<int32_t> prompt, int64_t max_tokens) {
    GenerateRequest r;
    r.prompt_ids = std::move(prompt);
    r.params.temperature = 0;
    r.params.max_tokens = max_tokens;
    r.params.ignore_eos = true;
    r.params.logprobs = 1;
    return r;
  }

  static Answer collect(Generation& generation) {
    Answer answer;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    std::vector<GenerationEvent> events;
    while (generation.wait(events, std::chrono::milliseconds(100))) {
      if (std::chrono::steady_clock::now() < deadline) continue;
      ADD_FAILURE() << "no answer after 10 s";
      return answer;
    }
    for (const GenerationEvent& event : events) {
      if (event.token >= 0) answer.tokens.push_back(event.token);
      if (event.logprobs) answer.logprobs.push_back(event.logprobs->token.logprob);
      if (event.finish != FinishReason::kNone) answer.finish = event.finish;
    }
    answer.cached_tokens = generation.cached_tokens();
    answer.prompt_logprobs = generation.prompt_logprobs();
    return answer;
  }
  static Answer ask(Engine& engine, std::vector<int32_t> prompt, int64_t max_tokens) {
    return collect(*engine.submit(request(std::move(prompt), max_tokens)));
  }

  ModelFolder folder_;
};

TEST_F(PrefixCaching, APromptThatIsWhollyCachedIsAnsweredAgain) {
  Engine plain(config(16, false));
  for (const int length : {1, 15, 16, 17, 31, 32, 33, 48}) {
    Engine engine(config());
    const std::string what = std::to_string(length) + " tokens";
    const Answer first = ask(engine, ids(length), 8), second = ask(engine, ids(length), 8);
    EXPECT_EQ(first.tokens.size(), 8u);
    EXPECT_EQ(first.cached_tokens, 0) << what;
    EXPECT_EQ(second.cached_tokens, (length - 1) / 16 * 16) << what;
    expect_same(first, second, what);
    expect_same(first, ask(plain, ids(length), 8), what + " without the cache");
    // The chain of blocks is whole: a longer prompt finds all that it shares.
    std::vector<int32_t> longer = ids(length);
    for (const int32_t id : ids(20, 7)) longer.push_back(id);
    const Answer third = ask(engine, longer, 8);
    EXPECT_EQ(third.cached_tokens, length / 16 * 16) << what;
    expect_same(third, ask(plain, longer, 8), what + " and 20 more");
  }
}

// An answer's own blocks are found by the next turn of its conversation.
TEST_F(PrefixCaching, TheNextTurnFindsTheAnswer) {
  Engine engine(config()), plain(config(16, false));
  std::vector<int32_t> conversation = ids(30);
  const Answer answer = ask(engine, conversation, 20);
  conversation.insert(conversation.end(), answer.tokens.begin(), answer.tokens.end());
  for (const int32_t id : ids(5, 3)) conversation.push_back(id);
  const Answer next = ask(engine, conversation, 8);
  EXPECT_EQ(next.cached_tokens, 48) << "the last token of an answer is never computed: 49 of 50 are";
  expect_same(next, ask(plain, conversation, 8), "the next turn");
}

TEST_F(PrefixCaching, PromptLogprobsAreTheSameEachTime) {
  for (const int32_t block_size : {16, 32}) {
    Engine engine(config(block_size)), plain(config(block_size, false));
    GenerateRequest scored = request(ids(33), 1);
    scored.params.prompt_logprobs = 1;
    const Answer expected = collect(*plain.submit(scored));
    for (int round = 0; round < 3; ++round) {
      const std::string what = "block " + std::to_string(block_size) + ", round " + std::to_string(round);
      const Answer answer = collect(*engine.submit(scored));
      EXPECT_EQ(answer.cached_tokens, 0) << what << ": cached tokens have no logits";
      ASSERT_EQ(answer.prompt_logprobs.size(), 33u) << what;
      EXPECT_FALSE(answer.prompt_logprobs[0]) << what;
      for (size_t i = 1; i < 33; ++i) ASSERT_TRUE(answer.prompt_logprobs[i]) << what << ", token " << i;
      EXPECT_EQ(prompt_values(answer), prompt_values(expected)) << what;
      expect_same(answer, expected, what);
    }
  }
}

TEST_F(PrefixCaching, PromptLogprobsDoNotDisturbANeighbour) {
  Engine engine(config()), plain(config(16, false));
  const Answer expected = ask(plain, ids(33), 8);
  GenerateRequest scored = request(ids(33), 1);
  scored.params.prompt_logprobs = 1;
  ask(engine, ids(33), 1);  // fills the cache
  const auto first = engine.submit(scored);
  const auto neighbour = engine.submit(request(ids(33), 8));
  const auto second = engine.submit(scored);
  const Answer beside = collect(*neighbour);
  EXPECT_EQ(beside.cached_tokens, 32);
  expect_same(beside, expected, "the neighbour");
  EXPECT_EQ(prompt_values(collect(*first)), prompt_values(collect(*second)));
}

// Prompt and output end with the last slot of the last block that the table has, next to others that are still running.
TEST_F(PrefixCaching, ASequenceMayFillItsTable) {
  EngineConfig full = config(), unshared = config(16, false);
  full.max_model_len = unshared.max_model_len = 64;
  Engine engine(full), plain(unshared);
  std::vector<std::shared_ptr<Generation>> running;
  const std::vector<std::pair<int, int64_t>> lengths = {{20, 40}, {56, 8}, {63, 1}, {48, 16}, {33, 30}};
  for (const auto& [prompt, output] : lengths) running.push_back(engine.submit(request(ids(prompt, prompt), output)));
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto& [prompt, output] = lengths[i];
    const Answer answer = collect(*running[i]);
    EXPECT_EQ(static_cast<int64_t>(answer.tokens.size()), output);
    EXPECT_EQ(answer.finish, FinishReason::kLength);
    expect_same(answer, ask(plain, ids(prompt, prompt), output), std::to_string(prompt) + " tokens");
  }
}

// Seven of eight blocks are taken by the first; the second takes the last, and then both want more.
TEST_F(PrefixCaching, OneBlockLeftInThePool) {
  EngineConfig tight = config(), roomy = config(16, false);
  tight.num_gpu_blocks_override = kMaxLen / 16;
  Engine plain(roomy);
  for (const bool caching : {false, true}) {
    tight.enable_prefix_caching = caching;
    for (const int second : {1, 14, 15, 16}) {
      Engine engine(tight);
      const auto a = engine.submit(request(ids(100), 28)), b = engine.submit(request(ids(second, 5), 20));
      const std::string what = std::to_string(second) + " tokens" + (caching ? ", cached" : "");
      expect_same(collect(*a), ask(plain, ids(100), 28), "100 tokens, beside " + what);
      expect_same(collect(*b), ask(plain, ids(second, 5), 20), what);
    }
  }
}

}  // namespace
}  // namespace quire
