// The engine's rows of the option table, as `quire bench` and the other commands use them.
#include "engine/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

class EngineOptionsTest : public ::testing::Test {
 protected:
  EngineOptionsTest() { add_engine_options(table_, config_); }
  ParsedOptions parse(const std::vector<std::string>& args) {
    ParsedOptions parsed = table_.parse(args);
    finish_engine_options(config_);
    return parsed;
  }
  std::string error(const std::vector<std::string>& args) {
    try {
      parse(args);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
      return e.what();
    }
    return "no error";
  }
  EngineConfig config_;
  OptionTable table_{"quire test", ""};
};

TEST_F(EngineOptionsTest, EveryFieldHasItsFlag) {
  parse({"--model",
         "m",
         "--served-model-name",
         "a",
         "b",
         "--tokenizer",
         "t",
         "--dtype",
         "float32",
         "--load-format",
         "dummy",
         "--generation-config",
         "vllm",
         "--seed",
         "5",
         "--max-model-len",
         "4K",
         "--block-size",
         "32",
         "--kv-cache-dtype",
         "float16",
         "--kv-cache-layout",
         "shuffle",
         "--attention-backend",
         "PHASED",
         "--kv-cache-memory-bytes",
         "1G",
         "--num-gpu-blocks-override",
         "9",
         "--no-enable-prefix-caching",
         "--no-enable-chunked-prefill",
         "--max-num-seqs",
         "3",
         "--max-num-batched-tokens",
         "2k",
         "--scheduling-policy",
         "priority",
         "--max-num-queued-reqs",
         "4",
         "--max-logprobs",
         "-1",
         "--chat-template",
         "c",
         "--threads",
         "6",
         "--numa-bind",
         "--numa-bind-nodes",
         "0",
         "--numa-bind-cpus",
         "0-3",
         "--progress",
         "--disable-log-stats"});
  EXPECT_EQ(config_.model, "m");
  EXPECT_EQ(config_.served_model_name, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config_.tokenizer, "t");
  EXPECT_EQ(config_.dtype, "float32");
  EXPECT_EQ(config_.load_format, "dummy");
  EXPECT_EQ(config_.generation_config, "vllm");
  EXPECT_EQ(config_.seed, 5U);
  EXPECT_EQ(config_.max_model_len, 4096);
  EXPECT_EQ(config_.block_size, 32);
  EXPECT_EQ(config_.kv_cache_dtype, "float16");
  EXPECT_EQ(config_.kv_cache_layout, "shuffle");
  EXPECT_EQ(config_.attention_backend, "PHASED");
  EXPECT_EQ(config_.kv_cache_memory_bytes, 1 << 30);
  EXPECT_EQ(config_.num_gpu_blocks_override, 9);
  EXPECT_FALSE(config_.enable_prefix_caching);
  EXPECT_FALSE(config_.enable_chunked_prefill);
  EXPECT_EQ(config_.max_num_seqs, 3);
  EXPECT_EQ(config_.max_num_batched_tokens, 2000);
  EXPECT_EQ(config_.scheduling_policy, "priority");
  EXPECT_EQ(config_.max_num_queued_reqs, 4);
  EXPECT_EQ(config_.max_logprobs, -1);
  EXPECT_EQ(config_.chat_template, "c");
  EXPECT_EQ(config_.threads, 6);
  EXPECT_TRUE(config_.numa_bind);
  EXPECT_EQ(config_.numa_bind_nodes, std::vector<int>{0});
  EXPECT_EQ(config_.numa_bind_cpus, std::vector<std::string>{"0-3"});
  EXPECT_TRUE(config_.show_progress);
  EXPECT_FALSE(config_.log_stats);
}

TEST_F(EngineOptionsTest, AutoIsTheDefault) {
  parse({"--max-model-len", "auto", "--threads=auto", "--load-format", "gguf"});
  EXPECT_EQ(config_.max_model_len, 0);
  EXPECT_EQ(config_.threads, 0);
  EXPECT_EQ(config_.load_format, "auto");
  parse({"--max-model-len", "-1"});
  EXPECT_EQ(config_.max_model_len, 0);
  EXPECT_NE(table_.help().find("(default: auto)"), std::string::npos);
}

TEST_F(EngineOptionsTest, ScriptsOfTheFieldGoOnWithWarnings) {
  const ParsedOptions parsed = parse({"--gpu-memory-utilization",
                                      "0.9",
                                      "--enforce-eager",
                                      "--trust-remote-code",
                                      "--swap-space",
                                      "4",
                                      "--task",
                                      "generate",
                                      "-tp",
                                      "1",
                                      "--device",
                                      "cpu",
                                      "--guided-decoding-backend",
                                      "xgrammar",
                                      "--max_seq_len_to_capture",
                                      "8192",
                                      "--num-scheduler-steps=8",
                                      "-O3",
                                      "--compilation-config",
                                      "{}"});
  EXPECT_EQ(parsed.warnings.size(), 7U);  // of all but the share of memory, eager, -tp 1 and --device
}

TEST_F(EngineOptionsTest, WhatWouldMisleadIsRefused) {
  EXPECT_EQ(error({"--tensor-parallel-size", "2"}),
            "--tensor-parallel-size 2: must be 1: this engine runs one process on one device; several replicas go "
            "behind a router");
  EXPECT_EQ(error({"--dtype", "fp4"}), "--dtype fp4: must be one of auto, float32, float, bfloat16, float16, half");
  EXPECT_EQ(error({"--device", "tpu"}), "--device tpu: must be one of auto, cpu, cuda, hip, rocm");
  EXPECT_EQ(error({"--speculative-config", "{}"}), "--speculative-config: not supported");
  EXPECT_EQ(error({"--speculative-config.method=ngram"}), "--speculative-config.method: not supported");
  EXPECT_EQ(error({"--kv-cache-dtype", "nvfp4"}),
            "--kv-cache-dtype nvfp4: must be one of auto, float32, float16, bfloat16, fp8, fp8_e4m3, fp8_e5m2, "
            "int8_per_token_head");
  EXPECT_EQ(error({"--task", "embed"}), "--task embed: must be one of auto, generate");
  EXPECT_EQ(error({"--numa-bind-nodes", "0"}), "--numa-bind-nodes: needs --numa-bind");
  EXPECT_EQ(error({"--numa-bind", "--numa-bind-nodes", "-1"}), "--numa-bind-nodes -1: must be from 0 to 4095");
}

TEST_F(EngineOptionsTest, ShuffleByTheirVariable) {
  setenv("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "1", 1);
  setenv("VLLM_CPU_KVCACHE_SPACE", "2", 1);
  parse({});
  unsetenv("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT");
  unsetenv("VLLM_CPU_KVCACHE_SPACE");
  EXPECT_EQ(config_.kv_cache_layout, "shuffle");
  EXPECT_EQ(config_.kv_cache_memory_bytes, int64_t{2} << 30);
}

TEST_F(EngineOptionsTest, BackendByTheirVariables) {
  const auto backend = [&](const char* variable, const char* value) {
    setenv(variable, value, 1);
    config_.attention_backend = "";
    const std::string problem = error({});
    unsetenv(variable);
    return problem == "no error" ? config_.attention_backend : problem;
  };
  EXPECT_EQ(backend("VLLM_ROCM_USE_AITER", "1"), "ROCM_AITER_FA");
  EXPECT_EQ(backend("VLLM_ROCM_USE_AITER", "True"), "ROCM_AITER_FA");
  EXPECT_EQ(backend("VLLM_ROCM_USE_AITER", "0"), "auto");
  EXPECT_EQ(backend("VLLM_ROCM_USE_AITER", "some"), "VLLM_ROCM_USE_AITER=some: must be one of 1, true, 0, false");
  EXPECT_EQ(backend("VLLM_ROCM_USE_AITER_MHA", "1"), "");
  EXPECT_EQ(backend("VLLM_ATTENTION_BACKEND", "CPU_ATTN"), "CPU_ATTN");
  setenv("VLLM_ATTENTION_BACKEND", "CPU_ATTN", 1);  // the name itself says more
  EXPECT_EQ(backend("VLLM_ROCM_USE_AITER", "1"), "CPU_ATTN");
  unsetenv("VLLM_ATTENTION_BACKEND");
}

TEST_F(EngineOptionsTest, EveryNameOfAGpu) {
  for (const char* name : {"auto", "cpu", "cuda", "hip", "rocm"}) {
    parse({"--device", name});
    EXPECT_EQ(config_.device, name);
  }
}

}  // namespace
}  // namespace quire
