#pragma once
// A model that is a hash: a sequence's next token depends on all its tokens, which it keeps in a cache of its own by
// slot and reads back through the block table. A wrong position, a wrong slot, a block shared by mistake or a lost
// token changes the answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/parts.h"
#include "engine/stats.h"
#include "kvcache/block_pool.h"

namespace quire {

class FakeModel final : public Model {
 public:
  static constexpr int32_t kVocab = 97, kEos = 96;
  static constexpr int32_t kPoison = 90, kWorkerPoison = 92;  // in a step: forward() throws, one of its workers does
  static constexpr int32_t kNan = 91;                         // as a row's last token: its logits and state are NaN
  static constexpr size_t kHidden = 8;

  // What a test sets and reads; shared with the test, since the engine owns the model.
  struct Controls {
    std::atomic<int> step_ms{0};
    std::atomic<bool> hold{false};                         // no step ends until this is lowered
    std::function<void(const StepInput&)> before_forward;  // on the engine thread; set before the first request
    std::atomic<int64_t> steps{0}, tokens{0};
    std::atomic<bool> wrong{false};  // the cache held something else than it should
  };

  FakeModel(std::shared_ptr<Controls> controls, int64_t max_position) : controls_(std::move(controls)) {
    config_.architecture = "Fake";
    config_.layers = 1;
    config_.heads = config_.kv_heads = 1;
    config_.head_dim = 64;
    config_.hidden_size = kHidden;
    config_.vocab_size = kVocab;
    config_.max_position = max_position;
    config_.dtype = "float32";
    config_.eos_token_ids = {kEos, 1 << 20, -5};  // a file may name ids that the vocabulary lacks
  }
  const ModelConfig& config() const override { return config_; }
  AttentionGroup attention_group() const override {
    AttentionGroup group;
    group.heads = group.kv_heads = 1;
    group.head_dim = group.v_head_dim = 64;
    return group;
  }
  size_t weight_bytes() const override { return 1; }
  size_t workspace_bytes() const override { return 4096; }

  static int32_t next_token(std::span<const int32_t> tokens) {
    uint64_t hash = 1469598103934665603u;
    for (const int32_t token : tokens) hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211u;
    return static_cast<int32_t>(hash % 80);  // none of the special ones
  }
  // The state of the last of these tokens: a function of all of them.
  static std::vector<float> state(std::span<const int32_t> tokens) {
    uint64_t hash = 88172645463325252u;
    for (const int32_t token : tokens) hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211u;
    std::vector<float> out(kHidden);
    for (size_t i = 0; i < kHidden; ++i) out[i] = static_cast<float>(hash >> (7 * i) & 1023) / 7.0f - 70.0f;
    if (tokens.back() == kNan) out[3] = std::numeric_limits<float>::quiet_NaN();
    return out;
  }
  static std::vector<int32_t> expected(std::vector<int32_t> tokens, int64_t n) {
    const size_t prompt = tokens.size();
    for (int64_t i = 0; i < n; ++i) tokens.push_back(next_token(tokens));
    return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end()};
  }

  // The row's logits: 20 for the hash's token, 0 for the others.
  void forward(const StepInput& input, const AttentionBackend&, const AttentionPlan&, std::span<const PagedKv> kv,
               float* logits, Workspace& workspace, ThreadPool& pool) const override {
    if (workspace.mark() != 0) controls_->wrong = true;
    workspace.take<float>(1000);  // not given back if this throws
    if (cache_.empty()) cache_.resize(static_cast<size_t>(kv[0].blocks * kv[0].block_size), -1);
    ++controls_->steps;
    controls_->tokens += static_cast<int64_t>(input.token_ids.size());
    std::this_thread::sleep_for(std::chrono::milliseconds(controls_->step_ms));
    controls_->hold.wait(true);
    if (controls_->before_forward) controls_->before_forward(input);
    for (size_t i = 0; i < input.token_ids.size(); ++i) {
      if (input.token_ids[i] == kPoison) throw std::runtime_error("poisoned at 0x7f00deadbeef");
      if (input.token_ids[i] == kWorkerPoison) {
        pool.run([](int worker) {
          if (worker == 1) throw std::runtime_error("poisoned worker");
        });
      }
      cache_[static_cast<size_t>(input.attention.slots[i])] = input.token_ids[i];
    }
    const AttentionBatch& batch = input.attention;
    size_t row = 0, hidden_row = 0;
    for (size_t r = 0; r < batch.kv_lens.size(); ++r) {
      const int32_t first = batch.query_offsets[r], end = batch.query_offsets[r + 1], kv_len = batch.kv_lens[r];
      const int32_t* table = batch.block_tables + batch.block_table_rows[r] * batch.block_table_stride;
      const std::span<const int32_t> blocks(table,
                                            static_cast<size_t>((kv_len + kv[0].block_size - 1) / kv[0].block_size));
      std::vector<int32_t> tokens(static_cast<size_t>(kv_len));
      for (int32_t p = 0; p < kv_len; ++p) {
        tokens[static_cast<size_t>(p)] = cache_[static_cast<size_t>(slot_of(blocks, p, kv[0].block_size))];
      }
      for (int32_t i = first; i < end; ++i) {
        const int32_t position = kv_len - (end - i);
        if (input.positions[static_cast<size_t>(i)] != position) controls_->wrong = true;
        if (tokens[static_cast<size_t>(position)] != input.token_ids[static_cast<size_t>(i)]) controls_->wrong = true;
      }
      for (; row < input.logits_rows.size() && input.logits_rows[row] < end; ++row) {
        const int32_t position = kv_len - (end - input.logits_rows[row]);
        const auto seen = static_cast<size_t>(position) + 1;
        float* out = logits + row * kVocab;
        const bool nan = tokens[seen - 1] == kNan;
        std::fill_n(out, kVocab, nan ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
        if (!nan) out[next_token(std::span(tokens).first(seen))] = 20.0f;
      }
      for (; hidden_row < input.hidden_rows.size() && input.hidden_rows[hidden_row] < end; ++hidden_row) {
        const int32_t position = kv_len - (end - input.hidden_rows[hidden_row]);
        const std::vector<float> values = state(std::span(tokens).first(static_cast<size_t>(position) + 1));
        std::copy(values.begin(), values.end(), static_cast<float*>(input.hidden) + hidden_row * kHidden);
      }
    }
    if (row != input.logits_rows.size() || hidden_row != input.hidden_rows.size()) controls_->wrong = true;
    workspace.release(0);
  }

 private:
  ModelConfig config_;
  std::shared_ptr<Controls> controls_;
  mutable std::vector<int32_t> cache_;
};

// An engine over the fake model, and what its requests answer.
class FakeEngine {
 public:
  static EngineConfig small_config() {
    EngineConfig config;
    config.model = "fake";
    config.dtype = "float32";
    config.max_model_len = 256;
    config.num_gpu_blocks_override = 64;
    config.max_num_seqs = 16;
    config.max_num_batched_tokens = 64;
    config.log_stats = false;
    return config;
  }
  explicit FakeEngine(EngineConfig config = small_config(),
                      std::unique_ptr<EngineDevice> device = make_cpu_device(std::make_unique<ThreadPool>(2)))
      : controls(std::make_shared<FakeModel::Controls>()) {
    EngineParts parts;
    parts.device = std::move(device);
    threads = &parts.device->threads();
    parts.model = std::make_unique<FakeModel>(controls, 512);
    engine = std::make_unique<Engine>(std::move(config), std::move(parts));
  }
  ~FakeEngine() {
    release();
    engine.reset();
    EXPECT_FALSE(controls->wrong);
  }

  // Steps that were held may end.
  void release() const {
    controls->hold = false;
    controls->hold.notify_all();
  }

  static GenerateRequest greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
    GenerateRequest request;
    request.prompt_ids = std::move(prompt);
    request.params.temperature = 0;
    request.params.max_tokens = max_tokens;
    return request;
  }
  static std::vector<int32_t> prompt(int n, int salt) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) tokens[static_cast<size_t>(i)] = (i * 31 + salt * 17) % 80;
    return tokens;
  }

  // Within two seconds nothing runs or waits, and every block is free.
  void expect_quiet() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    EngineMetrics::Snapshot s = engine->metrics().snapshot();
    while ((s.running != 0 || s.waiting != 0 || s.free_blocks != s.total_blocks) &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      s = engine->metrics().snapshot();
    }
    EXPECT_EQ(s.running, 0);
    EXPECT_EQ(s.waiting, 0);
    EXPECT_EQ(s.free_blocks, s.total_blocks);
  }

  std::shared_ptr<FakeModel::Controls> controls;
  std::unique_ptr<Engine> engine;
  ThreadPool* threads = nullptr;  // the engine's, for the engine thread to use
};

// All events of a request until it ends; fails the test if that takes too long.
struct Answer {
  explicit Answer(Generation& generation, int32_t choices = 1)
      : tokens(static_cast<size_t>(choices)),
        finish(static_cast<size_t>(choices), FinishReason::kNone),
        last(static_cast<size_t>(choices)) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::vector<GenerationEvent> events;
    while (generation.wait(events, std::chrono::milliseconds(100))) {
      for (GenerationEvent& event : events) {
        const auto choice = static_cast<size_t>(event.choice);
        EXPECT_EQ(finish[choice], FinishReason::kNone) << "nothing comes after the end";
        if (event.token >= 0) tokens[choice].push_back(event.token);
        finish[choice] = event.finish;
        last[choice] = std::move(event);
      }
      events.clear();
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "the request does not end";
        return;
      }
    }
  }
  std::vector<std::vector<int32_t>> tokens;
  std::vector<FinishReason> finish;
  std::vector<GenerationEvent> last;
};

}  // namespace quire
