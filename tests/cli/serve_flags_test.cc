// The flags of `quire serve` as people's scripts give them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/process.h"

namespace quire {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// What `quire serve` says to arguments; a port that can't be ends it right after they have been read.
std::string serve_says(std::vector<std::string> args) {
  args.insert(args.begin(), "serve");
  for (const char* arg : {"--port", "70000"}) args.emplace_back(arg);
  const Outcome outcome = run_quire(args);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  return outcome.err;
}

bool accepted(const std::string& said) { return has(said, "--port 70000: must be from 0 to 65535"); }

// Each has a meaning, or is taken with a warning, or is refused with a reason; switches can be turned off. All are
// given at once; the one that is refused goes, and the others are tried again.
TEST(ServeFlags, EveryFlagOfVllmIsKnown) {
  std::ifstream file(QUIRE_TEST_DATA "/cli/vllm_serve_flags.txt");
  std::vector<std::vector<std::string>> flags;
  std::vector<std::string> off;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name, value;
    words >> name >> value;
    flags.push_back({"--" + name});
    if (!value.empty()) {
      flags.back().push_back(value);
    } else {
      off.push_back("--no-" + name);
      if (name.starts_with("enable-")) off.push_back("--disable-" + name.substr(7));
    }
  }
  EXPECT_GE(flags.size(), 190U);
  EXPECT_GE(off.size(), 60U);
  const std::string said = serve_says(off);
  EXPECT_TRUE(accepted(said)) << said;

  size_t refused = 0;
  while (true) {
    std::vector<std::string> args;
    for (const std::vector<std::string>& flag : flags) args.insert(args.end(), flag.begin(), flag.end());
    const std::string answer = serve_says(args);
    if (accepted(answer)) break;
    const auto named = [&](const std::vector<std::string>& flag) {
      return has(answer, "quire: error: " + flag.front() + ": ") && !has(answer, "expects");
    };
    const auto found = std::find_if(flags.begin(), flags.end(), named);
    ASSERT_NE(found, flags.end()) << answer;
    flags.erase(found);
    ++refused;
  }
  EXPECT_LE(refused, 60U);
}

TEST(ServeFlags, ShortNames) {
  for (const std::vector<std::string>& args : std::initializer_list<std::vector<std::string>>{
           {"-tp", "1"},   {"-pp", "1"},  {"-dp=1"},     {"-dcp", "1"}, {"-pcp", "1"},        {"-n", "1"},
           {"-r", "0"},    {"-dpl", "1"}, {"-dpn", "0"}, {"-dpr", "0"}, {"-dpa", "10.0.0.1"}, {"-dpp", "1"},
           {"-dpb", "mp"}, {"-dph"},      {"-dpe"},      {"-dpm"},      {"-q", "gguf"},       {"-O2"},
           {"-O", "3"},    {"-O=0"},      {"-asc", "4"}, {"-cc", "{}"}, {"-cc.mode", "3"}}) {
    EXPECT_TRUE(accepted(serve_says(args))) << args.front();
  }
  for (const char* name : {"-ep", "-ac", "-sc"}) EXPECT_TRUE(has(serve_says({name, "{}"}), std::string(name) + ": "));
}

TEST(ServeFlags, WhatIsRefusedSaysWhy) {
  EXPECT_TRUE(has(serve_says({"--speculative-config.method", "ngram"}), "--speculative-config.method: not supported"));
  EXPECT_TRUE(has(serve_says({"--cpu-offload-gb", "4"}), "--cpu-offload-gb 4: must be 0"));
  EXPECT_TRUE(has(serve_says({"-tp", "2"}), "-tp 2: must be 1"));
  EXPECT_TRUE(has(serve_says({"--rope-theta", "1e6"}), "--rope-theta: edit config.json"));
  EXPECT_TRUE(has(serve_says({"--tasks", "x"}), "did you mean --task?"));
}

TEST(ServeFlags, JsonOptionByKeys) {
  EXPECT_TRUE(accepted(serve_says({"--default-chat-template-kwargs.enable_thinking", "false"})));
  EXPECT_TRUE(accepted(serve_says({"--default_chat_template_kwargs.a.b_c=4k"})));
  EXPECT_TRUE(has(serve_says({"--default-chat-template-kwargs", "[1]"}), "must be a JSON object"));
  EXPECT_TRUE(has(serve_says({"--default-chat-template-kwargs..a", "1"}), "malformed"));
}

TEST(ServeFlags, ConfigFile) {
  const std::string path = testing::TempDir() + "/serve_flags.yaml";
  const auto says = [&](const std::string& yaml) {
    std::ofstream(path) << yaml;
    return serve_says({"--config", path});
  };
  EXPECT_TRUE(
      accepted(says("model: x.gguf\nserved-model-name: [a, b]\nenable_prefix_caching: false\nenable-lora: false\n"
                    "trust-remote-code: true\nasync-scheduling: false\nmax-model-len: 4k\napi-key: secret\n"
                    "default-chat-template-kwargs: {enable_thinking: false}\ncompilation-config: {mode: 3}\n")));
  EXPECT_TRUE(has(says("enable-lora: true\n"), "enable-lora: not supported"));
  EXPECT_TRUE(has(says("speculative-config: {method: ngram}\n"), "speculative-config: not supported"));
  EXPECT_TRUE(has(says("max-model-le: 5\n"), "unknown option 'max-model-le'; did you mean 'max-model-len'?"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace quire
