#include "bench/latency.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench/python_format.h"
#include "engine/options.h"

namespace quire {
namespace {

TEST(PythonRepr, AsPython) {
  const std::pair<double, const char*> cases[] = {{0.0, "0.0"},
                                                  {-0.0, "-0.0"},
                                                  {1.0, "1.0"},
                                                  {-1.5, "-1.5"},
                                                  {0.1, "0.1"},
                                                  {0.1 + 0.2, "0.30000000000000004"},
                                                  {1.0 / 3.0, "0.3333333333333333"},
                                                  {100.0, "100.0"},
                                                  {123456789.125, "123456789.125"},
                                                  {0.0001, "0.0001"},
                                                  {0.00001, "1e-05"},
                                                  {1.25e-7, "1.25e-07"},
                                                  {1e15, "1000000000000000.0"},
                                                  {1e16, "1e+16"},
                                                  {1.5e300, "1.5e+300"},
                                                  {5e-324, "5e-324"},
                                                  {9007199254740993.0, "9007199254740992.0"},
                                                  {std::numeric_limits<double>::infinity(), "inf"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(python_repr(value), text);
}

// The expected values are numpy.percentile's.
TEST(Percentile, LinearAsNumpy) {
  const std::vector<double> one = {2.5};
  EXPECT_EQ(percentile(one, 10), 2.5);
  EXPECT_EQ(percentile(one, 99), 2.5);
  const std::vector<double> five = {1, 2, 3, 4, 10};
  EXPECT_EQ(percentile(five, 0), 1);
  EXPECT_EQ(percentile(five, 10), 1.4);
  EXPECT_EQ(percentile(five, 50), 3);
  EXPECT_EQ(percentile(five, 90), 7.6000000000000005);
  EXPECT_EQ(percentile(five, 99), 9.76);
  EXPECT_EQ(percentile(five, 100), 10);
}

TEST(LatencyReport, LinesAndJson) {
  const LatencyReport report = make_latency_report("some/\"model\"", {0.5, 0.25, 1.0, 0.25});
  EXPECT_EQ(latency_text(report),
            "Avg latency: 0.5 seconds\n"
            "10% percentile latency: 0.25 seconds\n"
            "25% percentile latency: 0.25 seconds\n"
            "50% percentile latency: 0.375 seconds\n"
            "75% percentile latency: 0.625 seconds\n"
            "90% percentile latency: 0.8500000000000001 seconds\n"
            "99% percentile latency: 0.9849999999999999 seconds\n");
  EXPECT_EQ(
      latency_json(report),
      "{\n    \"model_id\": \"some/\\\"model\\\"\",\n    \"avg_latency\": 0.5,\n    \"latencies\": [\n        "
      "0.5,\n        0.25,\n"
      "        1.0,\n        0.25\n    ],\n    \"percentiles\": {\n        \"10\": 0.25,\n        \"25\": "
      "0.25,\n        \"50\": 0.375,\n"
      "        \"75\": 0.625,\n        \"90\": 0.8500000000000001,\n        \"99\": 0.9849999999999999\n    }\n}");
  EXPECT_TRUE(nlohmann::json::accept(latency_json(report)));
}

class LatencyOptionsTest : public ::testing::Test {
 protected:
  LatencyOptionsTest() {
    add_latency_options(table_, options_);
    add_engine_options(table_, config_);
  }
  std::string error(const std::vector<std::string>& args) {
    try {
      table_.parse(args);
      run_latency_benchmark(config_, options_);
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::kInvalidArgument || e.kind() == ErrorKind::kNotFound);
      return e.what();
    }
    return "no error";
  }
  EngineConfig config_;
  LatencyOptions options_;
  OptionTable table_{"quire bench latency", ""};
};

TEST_F(LatencyOptionsTest, DefaultsAreThoseOfTheField) {
  table_.parse({});
  EXPECT_EQ(options_.input_len, 32);
  EXPECT_EQ(options_.output_len, 128);
  EXPECT_EQ(options_.batch_size, 8);
  EXPECT_EQ(options_.num_iters_warmup, 10);
  EXPECT_EQ(options_.num_iters, 30);
  const std::vector<std::string> args = {"--num-iters-warmup", "0", "--n=2"};
  table_.parse(args);
  EXPECT_EQ(options_.num_iters_warmup, 0);
  EXPECT_EQ(options_.n, 2);
}

TEST_F(LatencyOptionsTest, NothingToMeasureIsAUsageError) {
  EXPECT_EQ(error({"--num-iters", "0"}), "--num-iters 0: must be from 1 to 16777216");
  EXPECT_EQ(error({"--batch-size", "0"}), "--batch-size 0: must be from 1 to 65536");
  EXPECT_EQ(error({"--use-beam-search"}), "--use-beam-search: beam search is not supported");
}

// The model is a file that does not exist: these are found before anything is loaded.
TEST_F(LatencyOptionsTest, FoundBeforeTheModelIsLoaded) {
  EXPECT_EQ(
      error({"--model", "/nonexistent.gguf", "--input-len", "250", "--output-len", "16", "--max-model-len", "256"}),
      "--input-len 250 + --output-len 16 = 266 tokens: the model's limit (--max-model-len) is 256");
  EXPECT_EQ(error({"--model", "/nonexistent.gguf", "--input-len", "1", "--output-json", "/nonexistent/x.json"}),
            "--output-json /nonexistent/x.json: cannot be written (No such file or directory)");
}

TEST_F(LatencyOptionsTest, NoEmptyResultFileAfterAFailure) {
  const std::string path = ::testing::TempDir() + "quire_latency_result.json";
  std::filesystem::remove(path);
  EXPECT_NE(error({"--model", "/nonexistent.gguf", "--output-json", path}).find("/nonexistent.gguf"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace quire
