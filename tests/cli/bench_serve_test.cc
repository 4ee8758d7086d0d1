// quire bench serve against a server of canned answers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/fake_server.h"
#include "cli/process.h"

namespace quire {
namespace {

using Json = nlohmann::json;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string answer(const std::string& type, const std::string& body, const std::string& status = "200 OK") {
  return "HTTP/1.1 " + status + "\r\nContent-Type: " + type +
         "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// A tokenizer of letters, as a server has it; BOS is 1 token.
std::string tokenizer_answer(const FakeRequest& request) {
  const Json body = Json::parse(request.body);
  if (request.head.starts_with("POST /detokenize ")) {
    std::string text;
    for (const int id : body["tokens"]) text += static_cast<char>(id);
    return answer("application/json", Json{{"content", text}}.dump());
  }
  Json tokens = Json::array();
  if (body["add_special"] == true) tokens.push_back(1);
  for (const char c : body["content"].get<std::string>()) tokens.push_back(static_cast<int>(c));
  return answer("application/json", Json{{"tokens", tokens}}.dump());
}

class BenchServe : public ::testing::Test {
 protected:
  BenchServe()
      : folder_(std::filesystem::temp_directory_path() / ("quire-bench-serve-" + std::to_string(getpid()))),
        server_([this](const FakeRequest& request) { return answer_to(request); }) {}
  ~BenchServe() override { std::filesystem::remove_all(folder_); }

  std::string answer_to(const FakeRequest& request) {
    if (request.head.starts_with("GET /v1/models "))
      return answer("application/json", R"({"data":[{"id":"small","max_model_len":100}]})");
    if (has(request.head, "tokenize ")) return tokenizer_answer(request);
    if (fail_) return answer("application/json", R"({"error":{"message":"queue full"}})", "503 Service Unavailable");
    return answer(
        "text/event-stream",
        "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[{\"text\":\"b\"}]}\n\n"
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n");
  }
  Outcome run(std::vector<std::string> more) {
    const std::string url = server_.url();
    std::vector<std::string> args = {"bench",         "serve", "--base-url", url.substr(0, url.size() - 3),
                                     "--num-prompts", "5"};
    args.insert(args.end(), more.begin(), more.end());
    return run_quire(args, "", {{"OPENAI_API_KEY", "secret"}});
  }

  bool fail_ = false;
  std::filesystem::path folder_;
  FakeServer server_;
};

TEST_F(BenchServe, RandomPromptsThroughTheServersTokenizer) {
  const Outcome outcome =
      run({"--random-input-len", "12", "--random-output-len", "2", "--temperature", "0", "--save-result",
           "--save-detailed", "--result-dir", folder_.string(), "--result-filename", "r.json", "--header", "X-Team=one",
           "--extra-body", R"({"top_k": 3})", "--request-rate", "200"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(has(outcome.out, "Successful requests:                     5         \n")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "Total input tokens:                      60        \n")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "Total generated tokens:                  10        \n")) << outcome.out;
  std::ifstream file(folder_ / "r.json");
  const Json json = Json::parse(file);
  EXPECT_EQ(json["model_id"], "small");
  EXPECT_EQ(json["generated_texts"], Json({"ab", "ab", "ab", "ab", "ab"}));
  int found = 0;
  for (const FakeRequest& request : server_.requests()) {
    if (!request.head.starts_with("POST /v1/completions ")) continue;
    ++found;
    EXPECT_TRUE(has(request.head, "Authorization: Bearer secret\r\n"));
    EXPECT_TRUE(has(request.head, "X-Team: one\r\n"));
    const Json body = Json::parse(request.body);
    EXPECT_EQ(body["model"], "small");
    EXPECT_EQ(body["prompt"].get<std::string>().size(), 11U);  // and the server's BOS
    EXPECT_EQ(body["max_tokens"], 2);
    EXPECT_EQ(body["ignore_eos"], true);
    EXPECT_EQ(body["temperature"], 0.0);
    EXPECT_EQ(body["top_k"], 3);
    EXPECT_EQ(body["stream_options"]["include_usage"], true);
  }
  EXPECT_EQ(found, 5);
}

TEST_F(BenchServe, FoundBeforeAnythingIsSent) {
  const Outcome outcome = run({"--random-input-len", "90", "--random-output-len", "11"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(has(outcome.err, "prompt 1: 90 + 11 tokens; the server's limit (max_model_len) is 100")) << outcome.err;
  const Outcome unwritable =
      run({"--input-len", "9", "--output-len", "1", "--save-result", "--result-filename", "/nonexistent/x"});
  EXPECT_EQ(unwritable.code, 2);
  EXPECT_TRUE(has(unwritable.err, "--result-filename /nonexistent/x: cannot be written")) << unwritable.err;
  for (const FakeRequest& request : server_.requests()) EXPECT_FALSE(has(request.head, "completions"));
}

TEST_F(BenchServe, FailuresAreShown) {
  fail_ = true;
  const Outcome outcome = run({"--input-len", "9", "--output-len", "1"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(has(outcome.out, "Failed requests:                         5         \n")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "503 Service Unavailable: queue full")) << outcome.out;
  EXPECT_TRUE(has(outcome.err, "no request succeeded")) << outcome.err;
  EXPECT_TRUE(has(run_quire({"bench", "serve", "--port", "1"}).err, "127.0.0.1:1: cannot connect")) << outcome.err;
}

}  // namespace
}  // namespace quire
