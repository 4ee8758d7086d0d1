#include "bench/serve.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/result_file.h"
#include "bench/serve_answers.h"
#include "bench/serve_report.h"

namespace quire {
namespace {

using Json = nlohmann::json;
using Clock = LoadClient::Clock;

Clock::time_point at(double seconds) {
  return Clock::time_point() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

TEST(ServeAnswers, TimesOfPieces) {
  ServeAnswers answers(AnswerShape::kStream, 2);
  answers.begin(1, at(10), at(10.25));
  answers.answer(1, 200, "OK");
  answers.body(
      1, ": ping\n\ndata: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"a\",\"content\":\"\"}}]}\n\nda",
      at(10.5));
  answers.body(1, "ta: {\"choices\":[{\"delta\":{\"content\":\"h\\u00e9\"}}],\"usage\":null}\n\n", at(11));
  answers.body(1, "data: {\"choices\":[{\"text\":\"llo\",\"logprobs\":null}],\"usage\":{\"completion_tokens\":2}}\n\n",
               at(11.125));
  answers.body(1, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
               at(12));
  answers.end(1, at(13), "");
  const RequestOutcome& outcome = answers.outcomes()[1];
  EXPECT_TRUE(outcome.success) << outcome.error;
  EXPECT_EQ(outcome.text, "h\u00e9llo");
  EXPECT_DOUBLE_EQ(outcome.start, 0.25);
  EXPECT_DOUBLE_EQ(outcome.queue_time, 0.25);
  EXPECT_DOUBLE_EQ(outcome.ttft, 0.25);
  EXPECT_EQ(outcome.itls, (std::vector<double>{0.5, 0.125}));
  EXPECT_DOUBLE_EQ(outcome.latency, 0.875);
  EXPECT_EQ(outcome.prompt_tokens, 7);
  EXPECT_EQ(outcome.output_tokens, 3);
  EXPECT_EQ(answers.ended(), 1U);
}

TEST(ServeAnswers, Failures) {
  const auto error_of = [](int status, const std::string& body, const std::string& broken = "") {
    ServeAnswers answers(AnswerShape::kStream, 1);
    answers.begin(0, at(0), at(0));
    answers.answer(0, status, "Reason");
    std::string error = broken;
    try {
      answers.body(0, body, at(1));
    } catch (const Error& thrown) {
      error = thrown.what();
    }
    answers.end(0, at(2), error);
    EXPECT_FALSE(answers.outcomes()[0].success);
    return answers.outcomes()[0].error;
  };
  EXPECT_EQ(error_of(503, R"({"error":{"message":"queue full"}})"), "503 Reason: queue full");
  EXPECT_EQ(error_of(200, "data: [DONE]\n\n"), "the answer has no choices");
  EXPECT_EQ(error_of(200, "data: {\"error\":{\"message\":\"broke\"}}\n\n"), "broke");
  EXPECT_EQ(error_of(200, "data: {\"choices\":[\n\n"), "the answer is no JSON: \"{\\\"choices\\\":[\"");
  EXPECT_EQ(error_of(200, "", "the connection broke"), "the connection broke");
}

TEST(ServeAnswers, WholeBodies) {
  ServeAnswers answers(AnswerShape::kWhole, 1);
  answers.begin(0, at(0), at(0));
  answers.answer(0, 200, "OK");
  answers.body(0, R"({"data":[{"embedding":[1,2]}],"usage":)", at(1));
  answers.body(0, R"({"prompt_tokens":9}})", at(2));
  answers.end(0, at(3), "");
  EXPECT_TRUE(answers.outcomes()[0].success);
  EXPECT_EQ(answers.outcomes()[0].prompt_tokens, 9);
  EXPECT_DOUBLE_EQ(answers.outcomes()[0].latency, 2.0);
}

RequestOutcome outcome_of(double start, double ttft, std::vector<double> itls, int64_t input, int64_t output) {
  RequestOutcome outcome;
  outcome.success = true;
  outcome.start = start;
  outcome.ttft = outcome.latency = ttft;
  for (const double itl : itls) outcome.latency += itl;
  outcome.itls = std::move(itls);
  outcome.prompt_tokens = input;
  outcome.output_tokens = output;
  return outcome;
}

struct Example {
  ServeOptions options;
  ServePlan plan;
  std::vector<RequestOutcome> outcomes;
  ServeReport report;
  Example() {
    options.goodput = {"ttft:250", "tpot:125"};
    options.percentile_metrics = "itl,e2el,tpot,ttft";
    options.metric_percentiles = "99,99.9";
    options.max_concurrency = 8;
    options.request_rate = "5";
    options.metadata = {"card = none"};
    plan = plan_serve_benchmark(options);
    outcomes = {outcome_of(0, 0.25, {0.125, 0.125}, 10, 3), outcome_of(0.5, 0.5, {0.25}, 20, 2), RequestOutcome(),
                outcome_of(1.5, 0.25, {}, 5, 1)};
    report = make_serve_report(outcomes, 4.0, plan);
  }
};

TEST(ServeReport, Table) {
  const Example example;
  EXPECT_EQ(serve_text(example.report, example.options, example.plan),
            "============ Serving Benchmark Result ============\n"
            "Successful requests:                     3         \n"
            "Failed requests:                         1         \n"
            "Maximum request concurrency:             8         \n"
            "Request rate configured (RPS):           5.00      \n"
            "Benchmark duration (s):                  4.00      \n"
            "Total input tokens:                      35        \n"
            "Total generated tokens:                  6         \n"
            "Request throughput (req/s):              0.75      \n"
            "Request goodput (req/s):                 0.50      \n"
            "Output token throughput (tok/s):         1.50      \n"
            "Peak output token throughput (tok/s):    3.00      \n"
            "Peak concurrent requests:                2.00      \n"
            "Total token throughput (tok/s):          10.25     \n"
            "---------------Time to First Token----------------\n"
            "Mean TTFT (ms):                          333.33    \n"
            "Median TTFT (ms):                        250.00    \n"
            "P99 TTFT (ms):                           495.00    \n"
            "P99.9 TTFT (ms):                         499.50    \n"
            "-----Time per Output Token (excl. 1st token)------\n"
            "Mean TPOT (ms):                          187.50    \n"
            "Median TPOT (ms):                        187.50    \n"
            "P99 TPOT (ms):                           248.75    \n"
            "P99.9 TPOT (ms):                         249.88    \n"
            "---------------Inter-token Latency----------------\n"
            "Mean ITL (ms):                           166.67    \n"
            "Median ITL (ms):                         125.00    \n"
            "P99 ITL (ms):                            247.50    \n"
            "P99.9 ITL (ms):                          249.75    \n"
            "----------------End-to-end Latency----------------\n"
            "Mean E2EL (ms):                          500.00    \n"
            "Median E2EL (ms):                        500.00    \n"
            "P99 E2EL (ms):                           745.00    \n"
            "P99.9 E2EL (ms):                         749.50    \n"
            "==================================================\n");
}

TEST(ServeReport, JsonAndItsName) {
  Example example;
  const ServeIdentity identity{"20260131-235959", "org/model", std::nullopt};
  Json json = Json::parse(serve_json(example.report, example.outcomes, example.options, example.plan, identity));
  EXPECT_EQ(json["endpoint_type"], "openai");
  EXPECT_EQ(json["label"], nullptr);
  EXPECT_EQ(json["tokenizer_id"], nullptr);
  EXPECT_EQ(json["card"], "none");
  EXPECT_EQ(json["request_rate"], 5.0);
  EXPECT_EQ(json["max_concurrency"], 8);
  EXPECT_EQ(json["completed"], 3);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_DOUBLE_EQ(json["request_goodput"], 0.5);
  EXPECT_DOUBLE_EQ(json["p99.9_ttft_ms"], 499.5);
  EXPECT_NEAR(json["std_ttft_ms"].get<double>(), 117.851, 1e-3);  // over all, not a sample
  EXPECT_EQ(json["latencies"].size(), 4U);
  EXPECT_FALSE(json.contains("itls"));
  EXPECT_EQ(serve_result_path(example.options, identity), "openai-5.0qps-concurrency8-model-20260131-235959.json");
  example.options.save_detailed = true;
  example.options.max_concurrency.reset();
  example.options.result_dir = "out";
  example.options.request_rate = "inf";
  json = Json::parse(serve_json(example.report, example.outcomes, example.options, example.plan, identity));
  EXPECT_EQ(json["itls"][0], Json({0.125, 0.125}));
  EXPECT_EQ(json["output_lens"], Json({3, 2, 0, 1}));
  EXPECT_EQ(json["errors"].size(), 4U);
  EXPECT_EQ(serve_result_path(example.options, identity), "out/openai-infqps-model-20260131-235959.json");
}

TEST(ServeReport, NothingSucceeded) {
  const Example example;
  const ServeReport report = make_serve_report(std::vector<RequestOutcome>(2), 1.0, example.plan);
  EXPECT_EQ(report.failed, 2);
  EXPECT_EQ(report.times.size(), 4U);
  EXPECT_EQ(report.times[0].mean, 0.0);
}

TEST(ServeOptions, Refusals) {
  const auto error_of = [](const std::vector<std::string>& args) -> std::string {
    ServeOptions options;
    OptionTable table("quire bench serve", "");
    add_serve_benchmark_options(table, options);
    try {
      table.parse(args);
      plan_serve_benchmark(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of({"--backend", "vllm", "--request-rate", "inf", "--burstiness", "0.5"}), "no error");
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--backend", "tgi"}, "--backend tgi: must be one of"},
      {{"--dataset-name", "sonnet"}, "--dataset-name sonnet: must be one of"},
      {{"--request-rate", "0"}, "--request-rate \"0\": must be a number above 0, or inf"},
      {{"--burstiness", "nan"}, "--burstiness \"nan\""},
      {{"--endpoint", "/v1/chat"}, "must begin with / and end with completions for --backend openai"},
      {{"--backend", "openai-chat", "--endpoint", "/v1/completions"}, "chat/completions"},
      {{"--ramp-up-strategy", "linear"}, "needs --ramp-up-start-rps and --ramp-up-end-rps"},
      {{"--ramp-up-start-rps", "3"}, "need --ramp-up-strategy"},
      {{"--ramp-up-strategy", "linear", "--request-rate", "3"}, "--request-rate: the rate is that of the ramp"},
      {{"--percentile-metrics", "ttft,speed"}, "--percentile-metrics \"speed\""},
      {{"--metric-percentiles", "101"}, "--metric-percentiles \"101\""},
      {{"--goodput", "itl:5"}, "--goodput \"itl:5\""},
      {{"--goodput", "ttft"}, "--goodput \"ttft\""},
      {{"--header", "novalue"}, "--header \"novalue\": must be KEY=VALUE"},
      {{"--header", "a=b\r\nc: d"}, "must not hold control characters"},
      {{"--extra-body", "[1]"}, "--extra-body \"[1]\": must be a JSON object"},
      {{"--skip-tokenizer-init"}, "need a tokenizer"},
      {{"--base-url", "localhost:8000"}, "--base-url localhost:8000: must look like http"},
      {{"--use-beam-search"}, "beam search is not supported"},
  };
  for (const auto& [args, message] : cases) {
    const std::string error = error_of(args);
    EXPECT_NE(error.find(message), std::string::npos) << error;
  }
}

TEST(ResultFile, FullDiskAndAppending) {
  ResultFile full("/dev/full");
  try {
    full.write("x");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--output-json /dev/full: writing failed (No space left on device)");
  }
  const std::string path = testing::TempDir() + "quire-results.jsonl";
  std::remove(path.c_str());
  for (const char* line : {"{1}", "{2}"}) ResultFile(path, "result-filename", ResultFile::Mode::kAppend).write(line);
  std::ifstream in(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "{1}\n{2}");
  ResultFile(path).write("{3}");
  std::ifstream again(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(again), {}), "{3}");
  { const ResultFile unused(path + ".unused"); }
  EXPECT_FALSE(std::ifstream(path + ".unused").good());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace quire
