#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "cli/fake_server.h"
#include "cli/process.h"

namespace quire {
namespace {

using Json = nlohmann::json;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Cli, HelpAndVersion) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{}, {"--help"}, {"-h"}}) {
    const Outcome outcome = run_quire(args);
    EXPECT_EQ(outcome.code, 0);
    for (const char* command : {"serve", "chat", "complete", "bench", "tokenize", "detokenize"})
      EXPECT_TRUE(has(outcome.out, command));
    EXPECT_EQ(outcome.err, "");
  }
  const std::string version = run_quire({"--version"}).out;
  EXPECT_EQ(version.find_first_not_of("0123456789."), version.size() - 1) << version;
  EXPECT_TRUE(has(run_quire({"--help=environment"}).out, "| `VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT` |"));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"serve"}, {"chat"}, {"complete"}, {"bench", "latency"}}) {
    std::vector<std::string> args = command;
    args.push_back("--help");
    const Outcome outcome = run_quire(args);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_TRUE(has(outcome.out, "--max-model-len")) << outcome.out;
    EXPECT_EQ(outcome.err, "");
  }
}

TEST(Cli, UsageErrorsAreOneLineAndEndWithTwo) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"serv"}, "unknown command 'serv'; did you mean 'serve'?"},
      {{"serve", "--max-num-seq", "3"}, "unknown option --max-num-seq; did you mean --max-num-seqs?"},
      {{"serve", "--port", "70000"}, "--port 70000: must be from 0 to 65535"},
      {{"serve", "-tp", "2"}, "-tp 2: must be 1"},
      {{"serve", "--quantization", "awq"}, "--quantization awq: must be one of auto, none, gguf"},
      {{"serve", "--root-path", "llm"}, "--root-path llm: must begin with /"},
      {{"bench", "speed"}, "unknown benchmark 'speed'"},
      {{"bench", "latency", "--num-iters", "0"}, "--num-iters 0: must be from 1"},
      {{"bench", "latency", "--batch-size", "0"}, "--batch-size 0: must be from 1"},
      {{"bench", "latency", "--input-len", "250", "--output-len", "16", "--max-model-len", "256"}, "266 tokens"},
      {{"bench", "latency", "--output-json", "/nonexistent/x.json"},
       "--output-json /nonexistent/x.json: cannot be written"},
      {{"chat", "/nonexistent/model.gguf", "-q", "hi"}, "/nonexistent/model.gguf"},
      {{"chat", "--url", "ftp://x", "-q", "hi"}, "--url ftp://x: must look like http://host:port/v1"},
      {{"chat", "--temperature", "-1"}, "--temperature -1: must be from 0"},
      {{"chat", "--max-model-len", "10", "--model", "line\nbreak"}, "line"},
  };
  for (const auto& [args, message] : cases) {
    const Outcome outcome = run_quire(args);
    EXPECT_EQ(outcome.code, 2) << message << outcome.err;
    EXPECT_TRUE(has(outcome.err, "quire: error: ")) << outcome.err;
    EXPECT_TRUE(has(outcome.err, message)) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err.find('\n', outcome.err.find("quire: error: ")), outcome.err.size() - 1) << outcome.err;
  }
}

std::string with_length(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

// Server-sent events in the chunked coding, one byte in each chunk, so that every border falls somewhere.
std::string stream(const std::vector<std::string>& events) {
  std::string out = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& event : events) {
    for (const char c : "data: " + event + "\n\n") out += std::string("1\r\n") + c + "\r\n";
  }
  return out + "0\r\n\r\n";
}

std::string chat_piece(const std::string& text) {
  return Json{{"choices", {{{"index", 0}, {"delta", {{"content", text}}}}}}}.dump();
}

const char* const kModels = R"({"object":"list","data":[{"id":"first-model"},{"id":"second"}]})";

TEST(CliRemote, QuickChatStreamsAndCountsTokens) {
  FakeServer server([](const FakeRequest& request) {
    if (request.head.starts_with("GET /v1/models ")) return with_length("200 OK", kModels);
    return stream({R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", chat_piece("Hel"),
                   chat_piece("lo \u00e9"), R"({"choices":[],"usage":{"completion_tokens":7}})", "[DONE]"});
  });
  const Outcome outcome =
      run_quire({"chat", "--url", server.url(), "-q", "hi", "--stats", "--system-prompt", "be brief", "--temperature",
                 "0", "--max-tokens", "9", "--seed", "4", "--api-key", "secret"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("Using model: first-model\nHello \u00e9\nTTFT: ")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, " tokens/s (7 tokens in ")) << outcome.out;
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_TRUE(requests[1].head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
  EXPECT_TRUE(has(requests[1].head, "Authorization: Bearer secret\r\n"));
  const Json body = Json::parse(requests[1].body);
  EXPECT_EQ(body["messages"],
            Json::parse(R"([{"role":"system","content":"be brief"},{"role":"user","content":"hi"}])"));
  EXPECT_EQ(body["model"], "first-model");
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["temperature"], 0.0);
  EXPECT_EQ(body["max_tokens"], 9);
  EXPECT_EQ(body["seed"], 4);
  EXPECT_FALSE(body.contains("top_p"));
}

TEST(CliRemote, ConversationKeepsItsHistoryButNotFailures) {
  int answers = 0;
  FakeServer server([&](const FakeRequest&) {
    ++answers;
    if (answers == 2) return with_length("400 Bad Request", R"({"error":{"message":"too long","code":400}})");
    return stream({chat_piece("answer " + std::to_string(answers)), "[DONE]"});
  });
  const Outcome outcome = run_quire({"chat", "--url", server.url() + "/", "--model-name", "m"}, "one\ntwo\n\nthree\n",
                                    {{"OPENAI_API_KEY", "from-env"}});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(has(outcome.out, "> answer 1\n> ")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "> answer 3\n> \n")) << outcome.out;
  EXPECT_TRUE(has(outcome.err, "answered 400: too long")) << outcome.err;
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_TRUE(has(requests[0].head, "Authorization: Bearer from-env\r\n"));
  EXPECT_EQ(
      Json::parse(requests[2].body)["messages"],
      Json::parse(
          R"([{"role":"user","content":"one"},{"role":"assistant","content":"answer 1"},{"role":"user","content":"three"}])"));
}

TEST(CliRemote, ReasoningIsMarked) {
  FakeServer server([](const FakeRequest&) {
    return stream({R"({"choices":[{"delta":{"reasoning":"hm"}}]})",
                   R"({"choices":[{"delta":{"reasoning_content":"m"}}]})", chat_piece("yes"), "[DONE]"});
  });
  const Outcome outcome = run_quire({"chat", "--url", server.url(), "--model-name", "m", "-q", "?"});
  EXPECT_TRUE(has(outcome.out, "<think>\nhmm\n</think>\nyes\n")) << outcome.out;
}

TEST(CliRemote, CompleteUsesTheOtherRoute) {
  FakeServer server([](const FakeRequest&) { return stream({R"({"choices":[{"text":" world"}]})", "[DONE]"}); });
  const Outcome outcome =
      run_quire({"complete", "--url", server.url(), "--model-name", "m", "--quick", "hello", "--max-tokens=3"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "Using model: m\n world\n");
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_TRUE(requests[0].head.starts_with("POST /v1/completions HTTP/1.1\r\n"));
  EXPECT_EQ(Json::parse(requests[0].body)["prompt"], "hello");
}

TEST(CliRemote, BrokenServers) {
  const std::pair<std::string, int> answers[] = {
      {"", 1},
      {"SSH-2.0\r\n", 1},
      {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", 1},
      {"HTTP/1.1 200 OK\r\nContent-Length: minus\r\n\r\n", 1},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 1},
      {"HTTP/1.1 200 OK\r\nX: " + std::string(200000, 'x') + "\r\n\r\n", 1},
      {stream({"not json"}), 1},
      {stream({R"({"error":{"message":"lost it"}})"}), 1},
      {with_length("401 Unauthorized", R"({"error":"no key"})"), 2},
      {with_length("503 Service Unavailable", "busy"), 1},
  };
  for (const auto& [answer, code] : answers) {
    FakeServer server([&](const FakeRequest&) { return answer; });
    const Outcome outcome = run_quire({"chat", "--url", server.url(), "--model-name", "m", "-q", "?"});
    EXPECT_EQ(outcome.code, code) << answer.substr(0, 100) << outcome.err;
    EXPECT_TRUE(has(outcome.err, "quire: error: ")) << outcome.err;
  }
  const Outcome refused = run_quire({"chat", "--url", "http://127.0.0.1:1/v1", "-q", "?"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(has(refused.err, "127.0.0.1:1: cannot connect")) << refused.err;
  FakeServer empty([](const FakeRequest&) { return with_length("200 OK", R"({"data":[]})"); });
  EXPECT_TRUE(has(run_quire({"chat", "--url", empty.url(), "-q", "?"}).err, "lists no model"));
}

TEST(CliRemote, InterruptEndsWithZero) {
  FakeServer server([](const FakeRequest&) { return with_length("200 OK", kModels); });
  Process process({"chat", "--url", server.url()});
  ASSERT_TRUE(process.wait_for("> "));
  process.signal(SIGINT);
  EXPECT_EQ(process.finish().code, 0);
}

// With a real model: $QUIRE_TEST_MODEL.
class CliLocal : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("QUIRE_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set";
    model_ = path;
  }
  std::string model_;
};

// In float32: the first token of this answer is close to a tie, which rounding of the quantized path may decide
// otherwise.
TEST_F(CliLocal, QuickChatIsTheSameTwiceAndCounts) {
  const std::vector<std::string> args = {
      "chat",         model_, "-q",     "What is the capital of France?", "--dtype", "float32", "--temperature", "0",
      "--max-tokens", "12",   "--stats"};
  const Outcome first = run_quire(args), second = run_quire(args);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(has(first.out, "Paris")) << first.out;
  EXPECT_TRUE(has(first.out, "TTFT: ")) << first.out;
  EXPECT_EQ(first.out.substr(0, first.out.find("TTFT")), second.out.substr(0, second.out.find("TTFT")));
}

// tokenizer.json is enough: no config.json.
TEST_F(CliLocal, TokenizerOfAFolder) {
  const std::filesystem::path folder = ::testing::TempDir() + "quire_cli_tokenizer";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(QUIRE_TEST_DATA "/text/tokenizer_small.json", folder / "tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  const Outcome outcome = run_quire(
      {"complete", model_, "-q", "one two", "--tokenizer", folder, "--max-tokens", "2", "--max-model-len", "64"});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(CliLocal, TooLongAnswerIsRefusedWithItsLimit) {
  const Outcome outcome =
      run_quire({"complete", model_, "-q", "one two", "--max-tokens", "1000", "--max-model-len", "64"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(has(outcome.err, "64")) << outcome.err;
}

TEST_F(CliLocal, BenchLatencyPrintsAndWrites) {
  const std::string path = ::testing::TempDir() + "quire_cli_latency.json";
  const Outcome outcome =
      run_quire({"bench", "latency", "--model", model_, "--input-len", "8", "--output-len", "4", "--batch-size", "2",
                 "--num-iters", "2", "--num-iters-warmup", "0", "--output-json", path, "--max-model-len", "64"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("Warming up...\nAvg latency: ")) << outcome.out;
  std::ifstream file(path);
  const Json json = Json::parse(file);
  EXPECT_EQ(json["latencies"].size(), 2U);
  EXPECT_EQ(json["model_id"], model_);
  EXPECT_EQ(json["percentiles"].size(), 6U);
  const Outcome refused =
      run_quire({"bench", "latency", "--model", model_, "--input-len", "8000", "--output-len", "1000"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(has(refused.err, "9000 tokens: the model's limit (--max-model-len) is 8192")) << refused.err;
}

}  // namespace
}  // namespace quire
