#include "bench/breakdown.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bench/requests.h"
#include "bench/timed_device.h"
#include "engine/parts.h"
#include "model/random_checkpoint.h"

namespace quire {
namespace {

ModelConfig small_llama() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.vocab_size = 120;
  config.max_position = 256;
  config.hidden_act = "silu";
  config.dtype = "float32";
  return config;
}

// times: null = the engine as it is.
std::unique_ptr<Engine> make_engine(OpTimes* times) {
  EngineConfig config;
  config.model = "random";
  config.dtype = "float32";
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 64;
  config.num_gpu_blocks_override = 128;
  config.enable_prefix_caching = false;
  config.log_stats = false;
  const RandomCheckpoint checkpoint(small_llama());
  EngineParts parts;
  parts.device = make_cpu_device(std::make_unique<ThreadPool>(1));
  if (times != nullptr) parts.device = make_timed_device(std::move(parts.device), *times);
  ModelOptions options;
  options.dtype = ComputeDType::kF32;
  options.max_tokens = config.max_num_batched_tokens;
  options.max_logits_rows = config.max_num_seqs + kPromptLogprobRows;
  parts.model = load_model(checkpoint, options, parts.device->make_model_device(checkpoint, options));
  return std::make_unique<Engine>(std::move(config), std::move(parts));
}

std::vector<int32_t> tokens_of(Engine& engine, std::vector<int32_t> prompt, int64_t count) {
  GenerateRequest request;
  request.prompt_ids = std::move(prompt);
  request.params.temperature = 0;
  request.params.max_tokens = count;
  request.params.ignore_eos = true;
  const auto generation = engine.submit(std::move(request));
  std::vector<GenerationEvent> events;
  while (generation->wait(events, std::chrono::seconds(10))) {
  }
  std::vector<int32_t> tokens;
  for (const GenerationEvent& event : events) {
    if (event.token >= 0) tokens.push_back(event.token);
  }
  return tokens;
}

DeviceLimits made_up_limits() {
  DeviceLimits limits;
  limits.last_cache_bytes = 1000;
  limits.read_memory.best = 10;
  limits.read_cache.best = 40;
  limits.fma_f32.best = 100;
  limits.dot_int8.best = 400;
  return limits;
}

const BreakdownOp& op_of(const BreakdownPhase& phase, const std::string& name) {
  const auto found = std::find_if(phase.ops.begin(), phase.ops.end(), [&](const auto& op) { return op.name == name; });
  if (found == phase.ops.end()) throw std::runtime_error("there is no op " + name);
  return *found;
}

TEST(OpTimes, EveryMomentOfAStepBelongsToAnOp) {
  OpTimes times;
  const size_t op = times.op("work");
  EXPECT_EQ(times.op("work"), op);
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < 2; ++step) {
    times.begin_step(OpTimes::kDecode, 3);
    nap();  // staging
    times.begin_op();
    nap();
    times.end_op(OpTimes::kPlan, 0, 0);
    nap();  // rest
    times.begin_op();
    nap();
    times.end_op(op, 100, 7);
    nap();  // sampling
    times.end_step(5);
    nap();  // scheduling, if there is another step
  }
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const StepTotals& totals = times.totals(OpTimes::kDecode);
  EXPECT_EQ(totals.steps, 2);
  EXPECT_EQ(totals.rows, 6);
  double sum = 0;
  for (const OpTotals& one : totals.ops) sum += one.seconds;
  EXPECT_LE(sum, all - 0.002) << "what follows the last step is nobody's";
  for (const size_t i :
       {size_t{OpTimes::kStaging}, size_t{OpTimes::kPlan}, size_t{OpTimes::kRest}, size_t{OpTimes::kSampling}, op}) {
    EXPECT_GE(totals.ops[i].seconds, 0.004) << times.ops()[i].name;
    EXPECT_EQ(totals.ops[i].calls, 2) << times.ops()[i].name;
  }
  EXPECT_GE(totals.ops[OpTimes::kScheduling].seconds, 0.002);
  EXPECT_EQ(totals.ops[OpTimes::kScheduling].calls, 1);
  EXPECT_EQ(totals.ops[op].bytes, 200);
  EXPECT_EQ(totals.ops[op].operations, 14);
  EXPECT_EQ(totals.largest_step_bytes, 100);
  EXPECT_EQ(times.totals(OpTimes::kPrefill).steps, 0);

  times.clear();
  times.begin_step(OpTimes::kPrefill, 9);
  EXPECT_EQ(times.totals(OpTimes::kPrefill).ops[OpTimes::kScheduling].calls, 0);
  EXPECT_EQ(times.totals(OpTimes::kDecode).steps, 0);
}

TEST(Breakdown, WorkOfAnEngineIsCountedAndItsTokensStayTheSame) {
  constexpr int64_t kLayers = 3, kTokens = 6, kHidden = 64, kKv = 2 * 16, kInner = 96, kVocab = 120;
  const std::vector<int32_t> prompt = {5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  const auto rows = static_cast<double>(prompt.size());
  OpTimes times;
  std::unique_ptr<Engine> timed = make_engine(&times);
  EXPECT_EQ(tokens_of(*timed, prompt, kTokens), tokens_of(*make_engine(nullptr), prompt, kTokens));
  timed.reset();

  const Breakdown breakdown = make_breakdown(times, made_up_limits(), 1, 1.0);
  EXPECT_EQ(breakdown.prefill.steps, 1);
  EXPECT_EQ(breakdown.prefill.rows, 10);
  EXPECT_EQ(breakdown.decode.steps, kTokens - 1);
  EXPECT_EQ(breakdown.decode.rows, kTokens - 1);
  const OpTotals qkv = op_of(breakdown.prefill, "qkv").totals;
  EXPECT_EQ(qkv.calls, kLayers);
  EXPECT_EQ(qkv.operations, kLayers * rows * 2 * kHidden * (kHidden + 2 * kKv));
  EXPECT_EQ(op_of(breakdown.decode, "down").totals.operations, (kTokens - 1) * kLayers * 2 * kInner * kHidden);
  const OpTotals head = op_of(breakdown.prefill, "head").totals;
  EXPECT_EQ(head.calls, 1);
  EXPECT_EQ(head.operations, 2.0 * kVocab * kHidden) << "one row of logits";
  EXPECT_GE(head.bytes, kVocab * kHidden * 4);
  const OpTotals attention = op_of(breakdown.prefill, "attention").totals;
  EXPECT_EQ(attention.operations, kLayers * (rows * (rows + 1) / 2) * 2 * 4 * (16 + 16));
  EXPECT_EQ(attention.bytes, kLayers * rows * 2 * kKv * 4);
  EXPECT_EQ(op_of(breakdown.decode, "attention").totals.bytes, kLayers * (11 + 12 + 13 + 14 + 15) * 2 * kKv * 4);
  for (const char* name : {"norm", "rope, KV write", "o", "gate_up", "down", "embedding", "sampling", "plan"}) {
    EXPECT_GT(op_of(breakdown.decode, name).totals.seconds, 0) << name;
  }
}

TEST(Breakdown, SharesOfTheLimitThatBinds) {
  OpTimes times;
  const size_t quantized = times.op("qkv", OpArithmetic::kInt8, true), f32 = times.op("attention");
  times.begin_step(OpTimes::kDecode, 1);
  times.begin_op();
  times.end_op(quantized, 1e9, 8e9);  // 1 s of 100 ms of memory, or 20 ms of operations
  times.begin_op();
  times.end_op(f32, 1e9, 50e9);  // 500 ms of operations
  times.end_step(0);
  const Breakdown breakdown = make_breakdown(times, made_up_limits(), 1, 1.0);
  const BreakdownPhase& phase = breakdown.decode;
  EXPECT_FALSE(phase.from_cache);
  const BreakdownOp& product = op_of(phase, "qkv");
  EXPECT_EQ(product.limit, "read");
  EXPECT_NEAR(product.limit_share, 0.1 / product.totals.seconds, 1e-9 / product.totals.seconds);
  EXPECT_NEAR(phase.products_share, 0.02 / product.totals.seconds, 1e-9 / product.totals.seconds);
  const BreakdownOp& attention = op_of(phase, "attention");
  EXPECT_EQ(attention.limit, "f32");
  EXPECT_NEAR(attention.limit_share, 0.5 / attention.totals.seconds, 1e-9 / attention.totals.seconds);
  EXPECT_NEAR(phase.memory_share, 0.2 / phase.seconds, 1e-9 / phase.seconds);

  DeviceLimits larger_cache = made_up_limits();
  larger_cache.last_cache_bytes = int64_t{1} << 40;
  const Breakdown cached = make_breakdown(times, larger_cache, 1, 1.0);
  EXPECT_EQ(op_of(cached.decode, "qkv").limit, "read L3");
  EXPECT_NEAR(op_of(cached.decode, "qkv").limit_share, 0.025 / product.totals.seconds, 1e-9 / product.totals.seconds);

  const std::string text = breakdown_text(breakdown);
  EXPECT_NE(text.find("\nDecode: 1 steps of 1.0 rows"), std::string::npos) << text;
  EXPECT_EQ(text.find("Prefill"), std::string::npos) << "there was none";
  const nlohmann::json json = nlohmann::json::parse(breakdown_json(breakdown));
  EXPECT_EQ(json["decode"]["ops"][0]["op"], "qkv");
  EXPECT_EQ(json["decode"]["ops"][0]["bytes"], 1e9);
  EXPECT_EQ(json["prefill"]["steps"], 0);
  EXPECT_EQ(json["limits"]["dot_int8_gop_s"]["best"], 400.0);
}

}  // namespace
}  // namespace quire
