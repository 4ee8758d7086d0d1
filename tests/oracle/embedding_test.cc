// Embeddings of the real model against transformers' hidden states (tests/data/oracle/embeddings.json, made by
// tools/make_embedding_golden.py), and the same ones again under every way the engine may schedule them. On the CPU, or
// on the device that QUIRE_TEST_DEVICE names.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/stats.h"

namespace quire {
namespace {

using Vector = std::vector<float>;

// Base64 of little-endian floats.
Vector decode(const std::string& text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = std::string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(c);
    if (digit == std::string::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (++count % 4 != 1) bytes += static_cast<char>(bits >> (6 - 2 * ((count - 1) % 4)) & 255);
  }
  Vector out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

double cosine(const Vector& a, const Vector& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    aa += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    bb += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return ab / std::sqrt(aa * bb);
}

constexpr size_t kNewTokens = 3;

struct Item {
  std::string name;
  std::vector<int32_t> ids;
  Pooling pooling;
  Vector expected;
  std::vector<int32_t> next;  // greedy tokens after ids; empty where ids are a part of the prompt only
};

const std::vector<Item>& items() {
  static const std::vector<Item> all = [] {
    const auto read = [](const char* name) {
      std::ifstream file(std::string(QUIRE_TEST_DATA "/oracle/") + name);
      return nlohmann::json::parse(file);
    };
    const nlohmann::json prompts = read("smollm2.json"), states = read("embeddings.json");
    std::vector<Item> list;
    for (const nlohmann::json& state : states["items"]) {
      const nlohmann::json& prompt = prompts["items"][state["prompt"].get<size_t>()];
      auto ids = prompt["prompt_ids"].get<std::vector<int32_t>>();
      auto next = prompt["generated_ids"].get<std::vector<int32_t>>();
      next.resize(ids.size() == state["tokens"] ? kNewTokens : 0);
      ids.resize(state["tokens"]);
      list.push_back({prompt["name"], ids, Pooling::kLast, decode(state["last"]), next});
      list.push_back({prompt["name"], ids, Pooling::kMean, decode(state["mean"]), next});
    }
    return list;
  }();
  return all;
}

class EmbeddingTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("QUIRE_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set (./test sets it)";
    const char* device = std::getenv("QUIRE_TEST_DEVICE");
    config_.device = device == nullptr ? "cpu" : device;
    config_.model = path;
    config_.dtype = "float32";
    config_.kv_cache_dtype = "float32";
    config_.max_model_len = 512;
    config_.max_num_seqs = 16;
    config_.num_gpu_blocks_override = 256;
    config_.threads = 2;
    config_.log_stats = false;
  }
  static std::shared_ptr<Generation> submit(Engine& engine, const Item& item) {
    GenerateRequest request;
    request.prompt_ids = item.ids;
    request.pooling = item.pooling;
    return engine.submit(std::move(request));
  }
  static Vector embedding_of(Generation& generation) {
    std::vector<GenerationEvent> events;
    while (generation.wait(events, std::chrono::milliseconds(60000))) {
    }
    EXPECT_EQ(events.size(), 1u);
    return {generation.embedding().begin(), generation.embedding().end()};
  }
  // In the same steps as requests for text, whose rows of logits come first.
  static std::vector<Vector> together(Engine& engine) {
    std::vector<std::shared_ptr<Generation>> texts, generations;
    for (const Item& item : items()) {
      GenerateRequest text;
      text.prompt_ids = item.ids;
      text.params.temperature = 0;
      text.params.max_tokens = static_cast<int64_t>(kNewTokens);
      texts.push_back(engine.submit(std::move(text)));
      generations.push_back(submit(engine, item));
    }
    std::vector<Vector> all;
    for (const auto& generation : generations) all.push_back(embedding_of(*generation));
    for (size_t i = 0; i < texts.size(); ++i) {
      if (items()[i].next.empty()) continue;
      EXPECT_EQ(tokens_of(*texts[i]), items()[i].next) << items()[i].name;
    }
    return all;
  }
  static std::vector<int32_t> tokens_of(Generation& generation) {
    std::vector<GenerationEvent> events;
    while (generation.wait(events, std::chrono::milliseconds(60000))) {
    }
    std::vector<int32_t> tokens;
    for (const GenerationEvent& event : events) tokens.push_back(event.token);
    return tokens;
  }
  // Bit for bit where the order of arithmetic is fixed.
  void expect_same(const std::vector<Vector>& a, const std::vector<Vector>& b, const char* what) const {
    for (size_t i = 0; i < a.size(); ++i) {
      if (config_.device == "cpu") {
        EXPECT_EQ(a[i], b[i]) << items()[i].name << ", " << what;
      } else {
        EXPECT_GE(cosine(a[i], b[i]), 1 - 1e-6) << items()[i].name << ", " << what;
      }
    }
  }

  EngineConfig config_;
};

TEST_F(EmbeddingTest, StatesAreThoseOfTransformersHoweverTheyAreScheduled) {
  std::vector<Vector> first;
  {
    config_.enable_prefix_caching = false;
    Engine engine(config_);
    for (const Item& item : items()) first.push_back(embedding_of(*submit(engine, item)));
    expect_same(together(engine), first, "one batch");
  }
  double worst = 1;
  for (size_t i = 0; i < items().size(); ++i) {
    ASSERT_EQ(first[i].size(), items()[i].expected.size());
    worst = std::min(worst, cosine(first[i], items()[i].expected));
    EXPECT_GE(cosine(first[i], items()[i].expected), 1 - 1e-6) << items()[i].name;
  }
  std::cout << "1 - cosine at most " << 1 - worst << "\n";

  config_.max_num_batched_tokens = 72;
  config_.enable_prefix_caching = true;
  Engine engine(config_);
  expect_same(together(engine), first, "72 tokens a step");
  expect_same(together(engine), first, "72 tokens a step, prefix cache warm");
  EXPECT_GT(engine.metrics().snapshot().prefix_cache_hits, 0);
}

}  // namespace
}  // namespace quire
