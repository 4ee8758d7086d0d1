#pragma once
// What an engine is started with. The option table (engine/options.h) fills it from flags, environment and config file.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/generation.h"

namespace quire {

// Prompt rows of a step whose logits are wanted, at most.
constexpr int64_t kPromptLogprobRows = 256;
// Tokens of a step that go into a mean of hidden states, at most; room for their states is made at start.
constexpr int64_t kMeanPoolingRows = 1024;

struct EngineConfig {
  std::string model;                           // .gguf file, folder or hub id; empty = the embedded default
  std::vector<std::string> served_model_name;  // empty = model as given
  std::string tokenizer;                       // empty = the model's own
  std::string device = "auto";                 // gpu::device_names()
  std::string dtype = "auto";                  // auto, float32, float, bfloat16; on the GPU float16 and half too
  std::string load_format = "auto";            // auto, dummy
  std::string generation_config = "auto";      // auto = the model's, vllm = neutral
  std::string runner = "auto";                 // auto, generate, pooling (no request for tokens is taken)
  std::string pooler_config;                   // JSON of --pooler-config; finish_engine_options() reads it into:
  Pooling pooling = Pooling::kLast;            // of embeddings
  bool normalize_embeddings = true;            // to length 1
  uint64_t seed = 0;
  int64_t max_model_len = 0;  // 0 = the model's
  int32_t block_size = 16;
  std::string kv_cache_dtype = "auto";    // kv_cache.h has the names
  std::string kv_cache_layout = "plain";  // plain, shuffle
  std::string attention_backend;          // empty = best
  std::string extend_strategy = "paged";  // paged, gather
  int64_t kv_cache_memory_bytes = 0;      // 0 = design.md section 5
  double gpu_memory_utilization = 0.92;   // share of the GPU's memory that is ours
  int64_t num_gpu_blocks_override = 0;    // blocks, for tests; 0 = off
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
  int64_t max_num_seqs = 0;                // 0 = what suits the device
  int64_t max_num_batched_tokens = 0;      // 0 = what suits the device
  std::string scheduling_policy = "fcfs";  // fcfs, priority
  int64_t max_num_queued_reqs = 0;         // 0 = 1024
  int32_t max_logprobs = 20;               // -1 = vocabulary
  std::string chat_template;               // file or inline; empty = the model's
  int32_t threads = 0;                     // 0 = default_thread_count()
  bool numa_bind = false;
  std::vector<int> numa_bind_nodes;
  std::vector<std::string> numa_bind_cpus;
  bool enforce_eager = false;  // no graphs
  bool log_transfers = false;  // counts of copies and waits of each step, in the log
  bool show_progress = false;  // bar on stderr while loading, if that is a terminal
  bool log_stats = true;       // the periodic line
};

}  // namespace quire
