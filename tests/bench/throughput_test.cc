#include "bench/throughput.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench/engine_limits.h"
#include "engine/fake_model.h"
#include "engine/options.h"

namespace quire {
namespace {

class ThroughputOptionsTest : public ::testing::Test {
 protected:
  ThroughputOptionsTest() {
    add_throughput_options(table_, options_);
    add_engine_options(table_, config_);
  }
  std::string error(const std::vector<std::string>& args) {
    try {
      table_.parse(args);
      run_throughput_benchmark(config_, options_);
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::kInvalidArgument || e.kind() == ErrorKind::kNotFound);
      return e.what();
    }
    return "no error";
  }
  EngineConfig config_;
  ThroughputOptions options_;
  OptionTable table_{"quire bench throughput", ""};
};

TEST_F(ThroughputOptionsTest, FlagsOfTheField) {
  table_.parse({});
  EXPECT_EQ(options_.dataset.num_prompts, 1000);
  EXPECT_EQ(options_.dataset.random_input_len, 1024);
  EXPECT_EQ(options_.dataset.random_output_len, 128);
  EXPECT_EQ(options_.dataset.random_range_ratio, "0.0");
  table_.parse(std::vector<std::string>{"--backend", "vllm", "--dataset-name", "random", "--num-prompts", "7",
                                        "--random-range-ratio", "0.5", "--input-len=9", "--seed", "3"});
  EXPECT_EQ(options_.dataset.num_prompts, 7);
  EXPECT_EQ(options_.dataset.random_range_ratio, "0.5");
  EXPECT_EQ(options_.dataset.input_len, 9);
  finish_throughput_options(options_);
  EXPECT_EQ(options_.dataset.random_input_len, 9);
  EXPECT_EQ(config_.seed, 3U);
}

TEST_F(ThroughputOptionsTest, Refusals) {
  EXPECT_NE(error({"--dataset-name", "sonnet"}).find("--dataset-name sonnet: must be one of random"),
            std::string::npos);
  EXPECT_NE(error({"--dataset-path", "/nonexistent.json"}).find("/nonexistent.json"), std::string::npos);
  EXPECT_EQ(options_.dataset.name, "");  // sharegpt then
  EXPECT_NE(error({"--dataset-path", "x", "--dataset-name", "random"}).find("prompts of --dataset-name random"),
            std::string::npos);
  options_.dataset.path.clear();
  EXPECT_NE(error({"--random-range-ratio", "1"}).find("--random-range-ratio 1: must be from 0"), std::string::npos);
  EXPECT_NE(error({"--num-prompts", "0"}).find("--num-prompts 0: must be from 1"), std::string::npos);
}

// The model is a file that does not exist: these are found before anything is loaded.
TEST_F(ThroughputOptionsTest, FoundBeforeTheModelIsLoaded) {
  EXPECT_EQ(error({"--model", "/nonexistent.gguf", "--input-len", "100", "--output-len", "50", "--random-range-ratio",
                   "0.5", "--max-model-len", "224"}),
            "--random-input-len, --random-output-len, --random-range-ratio: up to 150 + 75 tokens; the model's limit "
            "(--max-model-len) is 224");
  EXPECT_NE(error({"--model", "/nonexistent.gguf", "--input-len", "100", "--output-len", "50", "--random-range-ratio",
                   "0.5", "--max-model-len", "225"})
                .find("/nonexistent.gguf"),
            std::string::npos);
}

TEST(ThroughputRequests, LengthsSpreadOverTheirRange) {
  ThroughputOptions options;
  options.dataset.num_prompts = 2000;
  options.dataset.random_input_len = 11;
  options.dataset.random_output_len = 5;
  options.dataset.random_range_ratio = "0.5";
  options.dataset.random_prefix_len = 3;
  const auto requests = make_throughput_requests(options, 50, 1);
  ASSERT_EQ(requests.size(), 2000U);
  std::set<size_t> inputs;
  std::set<int32_t> outputs, ids;
  for (const BenchRequest& request : requests) {
    inputs.insert(request.prompt.size() - 3);
    outputs.insert(request.output_len);
    ids.insert(request.prompt.begin(), request.prompt.end());
    EXPECT_TRUE(std::equal(request.prompt.begin(), request.prompt.begin() + 3, requests[0].prompt.begin()));
  }
  // floor(11 x 0.5) to ceil(11 x 1.5), floor(5 x 0.5) to ceil(5 x 1.5).
  EXPECT_EQ(inputs.size(), 13U);
  EXPECT_EQ(*inputs.begin(), 5U);
  EXPECT_EQ(*inputs.rbegin(), 17U);
  EXPECT_EQ(*outputs.begin(), 2);
  EXPECT_EQ(*outputs.rbegin(), 8);
  EXPECT_EQ(ids.size(), 50U);
  EXPECT_EQ(*ids.begin(), 0);
  EXPECT_EQ(make_throughput_requests(options, 50, 1)[7].prompt, requests[7].prompt);
  EXPECT_NE(make_throughput_requests(options, 50, 2)[7].prompt, requests[7].prompt);
  options.dataset.random_range_ratio = "0.0";
  for (const BenchRequest& request : make_throughput_requests(options, 50, 1)) {
    EXPECT_EQ(request.prompt.size(), 14U);
    EXPECT_EQ(request.output_len, 5);
  }
}

TEST(MeasureThroughput, CountsWhatTheEngineDid) {
  EngineConfig config = FakeEngine::small_config();
  config.max_num_queued_reqs = 100;
  const FakeEngine fake(config);
  ThroughputOptions options;
  options.dataset.num_prompts = 40;
  options.n = 2;
  options.dataset.random_input_len = 30;
  options.dataset.random_output_len = 10;
  options.dataset.random_range_ratio = "0.5";
  const auto requests = make_throughput_requests(options, 80, 5);  // ids that the model likes
  const ThroughputReport report = measure_throughput(*fake.engine, requests, options);
  fake.expect_quiet();
  int64_t prompts = 0, outputs = 0;
  for (const BenchRequest& request : requests) {
    prompts += std::ssize(request.prompt);
    outputs += 2 * request.output_len;
  }
  EXPECT_EQ(report.requests, 40);
  EXPECT_EQ(report.prompt_tokens, prompts);
  EXPECT_EQ(report.output_tokens, outputs);
  EXPECT_GT(report.seconds, 0.0);
  EXPECT_GE(fake.controls->tokens, outputs);
}

TEST(MeasureThroughput, AFailedRequestIsNoResult) {
  const FakeEngine fake;
  const std::vector<BenchRequest> requests = {{{1, 2, FakeModel::kPoison}, 4}};
  try {
    measure_throughput(*fake.engine, requests, {});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInternal);
  }
}

TEST(ThroughputReport, LinesAndJson) {
  const ThroughputReport report{"some/\"model\"", 2.0, 5, 101, 40};
  EXPECT_EQ(throughput_text(report),
            "Throughput: 2.50 requests/s, 70.50 total tokens/s, 20.00 output tokens/s\n"
            "Total num prompt tokens:  101\n"
            "Total num output tokens:  40\n");
  EXPECT_EQ(throughput_json(report),
            "{\n    \"model_id\": \"some/\\\"model\\\"\",\n    \"elapsed_time\": 2.0,\n    \"num_requests\": 5,\n"
            "    \"total_num_tokens\": 141,\n    \"requests_per_second\": 2.5,\n    \"tokens_per_second\": 70.5\n}");
  EXPECT_TRUE(nlohmann::json::accept(throughput_json(report)));
}

EngineWork unit_work() {
  EngineWork work;
  work.weight_bytes = 100;
  work.row_flop = 10;
  work.logits_row_flop = 4;
  work.kv_token_bytes = 1;
  work.pair_flop = 2;
  work.max_num_batched_tokens = 1000;
  work.max_num_seqs = 100;
  return work;
}

// Two prompts of 3 tokens, 4 tokens out: 3 decodes each, which see 4, 5 and 6 tokens.
TEST(EngineFloor, OneBatch) {
  const std::vector<BenchRequest> requests(2, {{1, 2, 3}, 4});
  // Reading is all: four steps, and 2 x 15 bytes of keys and values.
  EngineFloor floor = engine_floor(unit_work(), requests, 1, 10.0, 1e12);
  EXPECT_DOUBLE_EQ(floor.step_seconds, 10.0);
  EXPECT_NEAR(floor.seconds, 43.0, 1e-6);
  // Prompts: 2 x (3 rows, one of logits, 6 pairs); decodes: 2 x (3 rows with logits, 15 pairs).
  EXPECT_DOUBLE_EQ(floor.flop, 2 * (30 + 4 + 12) + 2 * (3 * 14 + 30));
  // Operations are all.
  floor = engine_floor(unit_work(), requests, 1, 1e12, 1.0);
  EXPECT_NEAR(floor.seconds, floor.flop, 1e-6);
  // Prompts are bound by operations, decodes by reading.
  floor = engine_floor(unit_work(), requests, 1, 10.0, 1.0);
  EXPECT_NEAR(floor.seconds, std::max(236.0, 92.0 + 144.0), 1e-6);
  floor = engine_floor(unit_work(), requests, 1, 3.0, 2.0);
  EXPECT_NEAR(floor.seconds, 46.0 + (3 * 100.0 + 30.0) / 3.0, 1e-6);
}

TEST(EngineFloor, StepsHaveLimits) {
  const std::vector<BenchRequest> requests(8, {std::vector<int32_t>(10), 1});
  EngineWork work = unit_work();
  const auto steps = [&] { return engine_floor(work, requests, 1, 100.0, 1e12).seconds; };
  EXPECT_NEAR(steps(), 1.0, 1e-6);
  work.max_num_batched_tokens = 30;
  EXPECT_NEAR(steps(), 3.0, 1e-6);  // 80 tokens
  work.max_num_seqs = 2;
  EXPECT_NEAR(steps(), 4.0, 1e-6);  // 8 tokens out
}

// Others may still be read while they decode: only the shortest output is sure to come after all prompts.
TEST(EngineFloor, RaggedRequests) {
  const std::vector<BenchRequest> requests = {{std::vector<int32_t>(30), 2}, {{1}, 5}};
  EngineWork work = unit_work();
  work.kv_token_bytes = work.pair_flop = 0;
  const EngineFloor floor = engine_floor(work, requests, 1, 100.0 / 75.0, 1.0);
  const double prompts = 31 * 10 + 2 * 4;
  EXPECT_DOUBLE_EQ(floor.flop, prompts + 5 * 14);
  EXPECT_NEAR(floor.seconds, std::max({floor.flop, 5 * 75.0, prompts + 75.0}), 1e-6);
  EXPECT_NEAR(floor.seconds, 393.0, 1e-6);
}

}  // namespace
}  // namespace quire
