// --device of a build for CUDA, for HIP or for neither, where there is no GPU.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/process.h"
#include "gpu/device.h"

namespace quire {
namespace {

class CliDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    reason_ = gpu::why_no_device();  // this test and the program are of the same build
    if (reason_.empty()) GTEST_SKIP() << "there is a GPU";
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
               "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256,
               "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Outcome run(const std::string& device) const {
    return run_quire({"bench", "latency", "--load-format", "dummy", "--model", folder_.string(), "--num-iters", "1",
                      "--num-iters-warmup", "0", "--input-len", "4", "--output-len", "2", "--batch-size", "1",
                      "--device", device});
  }
  static int count(const std::string& text, const std::string& part) {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }

  std::string reason_;
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("quire-device-" + std::to_string(::getpid()));
};

TEST_F(CliDevice, InsistingIsOneLineOfError) {
  for (const auto& [name, platform] : {std::pair("cuda", "CUDA"), std::pair("hip", "HIP"), std::pair("rocm", "HIP")}) {
    const Outcome outcome = run(name);
    const bool other = !gpu::platform().empty() && gpu::platform() != platform;
    const std::string reason = other ? "this program was built for " + std::string(gpu::platform()) : reason_;
    EXPECT_EQ(outcome.code, 1) << name;
    EXPECT_EQ(outcome.out, "") << name;
    EXPECT_EQ(outcome.err, "quire: error: --device " + std::string(name) + ": no GPU can be used: " + reason + "\n");
  }
}

TEST_F(CliDevice, AutoFallsBackWithOneLine) {
  const Outcome outcome = run("auto");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(count(outcome.out, "Avg latency: "), 1) << outcome.out;
  EXPECT_EQ(count(outcome.err, "no GPU is used: " + reason_ + "\n"), 1) << outcome.err;
}

TEST_F(CliDevice, CpuSaysNothingOfGpus) {
  const Outcome outcome = run("cpu");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(count(outcome.err, "no GPU"), 0) << outcome.err;
}

}  // namespace
}  // namespace quire
