#include "engine/options.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "gpu/device.h"

namespace quire {
namespace {

constexpr double kMaxTokens = 1 << 30;  // of a context or a step: far past any model, well inside 32-bit token counts

void add_model_options(OptionTable& table, EngineConfig& config) {
  table.group("Model and loading");
  table
      .add("model", config.model,
           "GGUF file, Hugging Face folder or hub id; without it the embedded default model is used")
      .env("QUIRE_MODEL")
      .value_name("MODEL");
  table
      .add("served-model-name", config.served_model_name,
           "names the model answers to; the first one is echoed in answers")
      .value_name("NAME [NAME ...]");
  table.add("tokenizer", config.tokenizer, "folder with tokenizer.json, if not the model's own").value_name("PATH");
  table.add("dtype", config.dtype, "type of computation; auto fits the checkpoint")
      .choices({"auto", "float32", "float", "bfloat16", "float16", "half"});
  table
      .add("load-format", config.load_format,
           "dummy: random weights of the model's shapes; else the file says what it is")
      .choices({"auto", "dummy", "safetensors", "gguf"});
  table
      .add("generation-config", config.generation_config,
           "auto: sampling defaults of the model's folder; vllm: neutral ones")
      .choices({"auto", "vllm"});
  table.add_unbound("quantization", "weights are used as the file has them").choices({"auto", "none", "gguf"});
  table.add("runner", config.runner, "what requests may ask for; auto: text and embeddings; pooling: embeddings only")
      .choices({"auto", "generate", "pooling"});
  table
      .add("pooler-config", config.pooler_config,
           "how embeddings are made: JSON with pooling_type (LAST, MEAN) and normalize (true, false)")
      .alias("override-pooler-config")
      .json_object()
      .value_name("JSON");
  table.add_unbound("task", "models generate text; --runner").choices({"auto", "generate"});
  table.add_unbound("convert", "models generate text").choices({"auto", "none"});
  table.add_unbound("logprobs-mode", "log-probabilities are those of the raw logits").choices({"raw_logprobs"});
  table.add("seed", config.seed, "seed of requests that name none, and of dummy weights");
  table
      .add("max-model-len", config.max_model_len,
           "longest prompt and answer together, in tokens; auto: what the model and the memory allow")
      .human_readable()
      .word("auto", 0)
      .word("-1", 0)
      .range(1, kMaxTokens);
  table
      .add("max-logprobs", config.max_logprobs, "largest logprobs and prompt_logprobs of a request; -1: the vocabulary")
      .range(-1, 1 << 24);
  table.add("chat-template", config.chat_template, "Jinja template, a file or the text itself").value_name("FILE");
  table.add("progress", config.show_progress, "bar on the terminal while the model loads");
}

void add_memory_options(OptionTable& table, EngineConfig& config) {
  table.group("KV cache");
  table.add("block-size", config.block_size, "tokens in one block of the cache").range(1, 4096);
  table.add("kv-cache-dtype", config.kv_cache_dtype, "type of cached keys and values")
      .choices({"auto", "float32", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head"});
  table.add("kv-cache-layout", config.kv_cache_layout, "order of the cache in memory")
      .choices({"plain", "shuffle"})
      .env("QUIRE_KV_CACHE_LAYOUT")
      .env("VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT")
      .env("VLLM_KV_CACHE_LAYOUT");
  table
      .add(
          "kv-cache-memory-bytes", config.kv_cache_memory_bytes,
          "size of the cache; auto: what the requests can use, at most a quarter of the CPU's free memory, or the rest "
          "of the GPU's share")
      .human_readable()
      .word("auto", 0)
      .range(1, 1e15)
      .env("VLLM_CPU_KVCACHE_SPACE");
  table
      .add("gpu-memory-utilization", config.gpu_memory_utilization,
           "share of the GPU's memory that weights, cache and scratch may take; nothing on the CPU")
      .alias("device-memory-utilization")
      .range(0.01, 1.0);
  table.add("num-gpu-blocks-override", config.num_gpu_blocks_override, "exact number of blocks, for tests")
      .word("auto", 0)
      .range(1, 1e9);
  table.add("enable-prefix-caching", config.enable_prefix_caching, "reuse the blocks of equal beginnings of prompts");
}

void add_scheduler_options(OptionTable& table, EngineConfig& config) {
  table.group("Scheduler");
  table.add("max-num-seqs", config.max_num_seqs, "sequences in one step; auto: what suits the device")
      .word("auto", 0)
      .range(1, 65536);
  table.add("max-num-batched-tokens", config.max_num_batched_tokens, "tokens in one step; auto: what suits the device")
      .human_readable()
      .word("auto", 0)
      .range(1, kMaxTokens);
  table.add("enable-chunked-prefill", config.enable_chunked_prefill, "split long prompts over several steps");
  table
      .add("scheduling-policy", config.scheduling_policy,
           "first come first served, or by the request's priority, lower first")
      .choices({"fcfs", "priority"});
  table
      .add("max-num-queued-reqs", config.max_num_queued_reqs,
           "waiting requests before the server answers 503; auto: 1024")
      .word("auto", 0)
      .range(1, 1 << 24);
  table.add("disable-log-stats", config.log_stats, "no periodic statistics line").invert();
}

void add_device_options(OptionTable& table, EngineConfig& config) {
  table.group("Device, kernels, NUMA");
  table.add("device", config.device, "where to compute; auto: the GPU if there is one").choices(gpu::device_names());
  table.add("enforce-eager", config.enforce_eager, "GPU: no graphs, every kernel is launched by itself");
  table.add("log-transfers", config.log_transfers, "GPU: log each step's copies, waits and launches by name");
  table
      .add("attention-backend", config.attention_backend,
           "name of the attention backend; an unknown one lists them all")
      .env("VLLM_ATTENTION_BACKEND")
      .env("VLLM_ROCM_USE_AITER")
      .value_name("NAME");
  table
      .add("extend-strategy", config.extend_strategy,
           "how new tokens read an older context: pages in place, or gathered first")
      .choices({"paged", "gather"});
  table.add("threads", config.threads, "compute threads; auto: the processors this process may use")
      .word("auto", 0)
      .range(1, 512)
      .env("QUIRE_THREADS");
  table.add("numa-bind", config.numa_bind, "keep memory and threads on one NUMA node");
  table.add("numa-bind-nodes", config.numa_bind_nodes, "the node, instead of the one most processors belong to")
      .range(0, 4095);
  table.add("numa-bind-cpus", config.numa_bind_cpus, "processors to use, such as 0-3").value_name("LIST [LIST ...]");
  const char* one_process =
      "must be 1: this engine runs one process on one device; several replicas go behind a router";
  for (const auto& [name, short_name] :
       {std::pair("tensor-parallel-size", "tp"), std::pair("pipeline-parallel-size", "pp"),
        std::pair("data-parallel-size", "dp"), std::pair("decode-context-parallel-size", "dcp"),
        std::pair("prefill-context-parallel-size", "pcp"), std::pair("data-parallel-size-local", "dpl"),
        std::pair("nnodes", "n")}) {
    table.add_unbound(name, "only 1").short_name(short_name).only("1", one_process).value_name("1");
  }
}

// Flags in people's scripts that change nothing about the answers here.
void add_ignored_options(OptionTable& table) {
  struct Row {
    const char* name;
    Values values;
    const char* why;
  };
  using enum Values;
  static constexpr Row kRows[] = {
      {"trust-remote-code", kNone, "no code of a model is ever run"},
      {"hf-token", kOne, "nothing is downloaded"},
      {"model-loader-extra-config", kOne, "there are no loaders to configure"},
      {"limit-mm-per-prompt", kOne, "models take text only"},
      {"allowed-local-media-path", kOne, "models take text only"},
      {"mm-processor-cache-gb", kOne, "models take text only"},
      {"language-model-only", kNone, "models take text only"},
      {"swap-space", kOne, "preempted requests are recomputed, not swapped"},
      {"preemption-mode", kOne, "preempted requests are recomputed"},
      {"max-parallel-loading-workers", kOne, "weights are read in parallel already"},
      {"download-dir", kOne, "nothing is downloaded; HF_HUB_CACHE names the cache"},
      {"tokenizer-mode", kOne, "there is one tokenizer implementation"},
      {"config-format", kOne, "the format is found from the files"},
      {"model-impl", kOne, "there is one implementation of each model"},
      {"use-tqdm-on-load", kNone, "--progress shows a bar"},
      {"safetensors-load-strategy", kOne, "files are mapped into memory"},
      {"ignore-patterns", kMany, "only files that the model names are read"},
      {"async-scheduling", kNone, "steps overlap where the device allows it"},
      {"long-prefill-token-threshold-adaptive", kNone, "a long prompt takes what the step has left"},
      {"watermark", kOne, "blocks are given as long as there are any"},
      {"prefill-schedule-interval", kOne, "prompts join every step"},
      {"long-prefill-token-threshold", kOne, "a long prompt takes what the step has left"},
      {"max-num-partial-prefills", kOne, "any number of prompts may be in chunks"},
      {"max-long-partial-prefills", kOne, "any number of prompts may be in chunks"},
      {"scheduler-reserve-full-isl", kNone, "prompts are admitted by chunks"},
      {"num-scheduler-steps", kOne, "the scheduler runs before every step"},
      {"use-v2-block-manager", kNone, "there is one block manager"},
      {"stream-interval", kOne, "every token is streamed as it comes"},
      {"prefix-caching-hash-algo", kOne, "a keyed 128-bit hash is used, and tokens are compared on a hit"},
      {"max-seq-len-to-capture", kOne, "graphs are captured for the sizes that come"},
      {"cuda-graph-sizes", kMany, "graphs are captured for the sizes that come"},
      {"cudagraph-capture-sizes", kMany, "graphs are captured for the sizes that come"},
      {"max-cudagraph-capture-size", kOne, "graphs are captured for the sizes that come"},
      {"compilation-config", kOne, "nothing is compiled at run time"},
      {"optimization-level", kOne, "nothing is compiled at run time"},
      {"performance-mode", kOne, "set --max-num-seqs and --max-num-batched-tokens"},
      {"disable-custom-all-reduce", kNone, "there is one device"},
      {"distributed-executor-backend", kOne, "there is one process"},
      {"data-parallel-address", kOne, "there is one process"},
      {"data-parallel-rpc-port", kOne, "there is one process"},
      {"data-parallel-backend", kOne, "there is one process"},
      {"data-parallel-rank", kOne, "there is one process"},
      {"data-parallel-start-rank", kOne, "there is one process"},
      {"data-parallel-hybrid-lb", kNone, "there is one process"},
      {"data-parallel-external-lb", kNone, "there is one process"},
      {"data-parallel-multi-port-external-lb", kNone, "there is one process"},
      {"node-rank", kOne, "there is one process"},
      {"all2all-backend", kOne, "there is one process"},
      {"eplb-config", kOne, "experts are not moved"},
      {"offload-backend", kOne, "nothing is offloaded"},
      {"kv-offloading-backend", kOne, "nothing is offloaded"},
      {"max-loras", kOne, "there are no adapters"},
      {"max-lora-rank", kOne, "there are no adapters"},
      {"max-cpu-loras", kOne, "there are no adapters"},
      {"lora-dtype", kOne, "there are no adapters"},
      {"custom-histogram-buckets", kOne, "the buckets are fixed"},
      {"master-addr", kOne, "there is one process"},
      {"master-port", kOne, "there is one process"},
      {"moe-backend", kOne, "kernels are chosen by the processor"},
      {"linear-backend", kOne, "kernels are chosen by the processor"},
      {"guided-decoding-backend", kOne, "this name is gone"},
      {"calculate-kv-scales", kNone, "the cache is never scaled"},
      {"aggregate-engine-logging", kNone, "there is one engine"},
      {"kv-cache-metrics", kNone, "all metrics are always on"},
      {"cudagraph-metrics", kNone, "all metrics are always on"},
      {"enable-mfu-metrics", kNone, "not measured"},
      {"show-hidden-metrics-for-version", kOne, "no metric is hidden"},
      {"collect-detailed-traces", kMany, "no traces are made"},
      {"fail-on-environ-validation", kNone, "unknown variables give a warning"},
  };
  table.group("Without effect");
  for (const Row& row : kRows) {
    OptionRow& added = table.ignored(row.name, row.values, row.why);
    for (const auto& [name, short_name] :
         {std::pair("optimization-level", "O"), std::pair("compilation-config", "cc"), std::pair("node-rank", "r"),
          std::pair("data-parallel-address", "dpa"), std::pair("data-parallel-rpc-port", "dpp"),
          std::pair("data-parallel-backend", "dpb"), std::pair("data-parallel-rank", "dpn"),
          std::pair("data-parallel-start-rank", "dpr"), std::pair("data-parallel-hybrid-lb", "dph"),
          std::pair("data-parallel-external-lb", "dpe"), std::pair("data-parallel-multi-port-external-lb", "dpm")}) {
      if (std::string_view(row.name) == name) added.short_name(short_name);
    }
  }
}

// Flags that would change answers or promise something that is not there.
void add_refused_options(OptionTable& table) {
  struct Row {
    const char* name;
    const char* why;
    Values values = Values::kOne;
    const char* short_name = nullptr;
  };
  using enum Values;
  static constexpr Row kRows[] = {
      {"revision", "pass the folder of that revision as the model"},
      {"code-revision", "no code of a model is ever run"},
      {"tokenizer-revision", "pass the folder of that revision with --tokenizer"},
      {"hf-overrides", "edit config.json"},
      {"hf-config-path", "the configuration is read from the model's folder"},
      {"rope-scaling", "edit config.json"},
      {"rope-theta", "edit config.json"},
      {"override-generation-config", "edit generation_config.json, or send the values with each request"},
      {"skip-tokenizer-init", "a tokenizer is always loaded where the model has one", kNone},
      {"logits-processors", "not supported"},
      {"enable-prompt-embeds", "not supported", kNone},
      {"enable-sleep-mode", "not supported", kNone},
      {"kv-transfer-config", "not supported"},
      {"kv-events-config", "not supported"},
      {"kv-cache-dtype-skip-layers", "all layers have one type"},
      {"max-num-active-seqs", "use --max-num-seqs"},
      {"max-num-queued-tokens", "use --max-num-queued-reqs"},
      {"kv-cache-memory", "use --kv-cache-memory-bytes"},
      {"attention-config", "use --attention-backend", kOne, "ac"},
      {"device-ids", "use --numa-bind-cpus"},
      {"enable-expert-parallel", "not supported", kNone, "ep"},
      {"enable-eplb", "not supported", kNone},
      {"speculative-config", "not supported", kOne, "sc"},
      {"spec-method", "not supported"},
      {"spec-model", "not supported"},
      {"spec-tokens", "not supported"},
      {"structured-outputs-config", "not supported"},
      {"reasoning-parser", "not supported"},
      {"enable-lora", "not supported", kNone},
      {"lora-modules", "not supported"},
      {"profiler-config", "not supported; use perf"},
      {"otlp-traces-endpoint", "not supported"},
  };
  table.group("Refused");
  for (const Row& row : kRows) {
    OptionRow& added = table.refused(row.name, row.why, row.values);
    if (row.short_name != nullptr) added.short_name(row.short_name);
  }
  // Off is what they are.
  for (const char* name : {"cpu-offload-gb", "kv-offloading-size"})
    table.add_unbound(name, "only 0")
        .only("0", "must be 0: weights and cache stay where they are computed with")
        .value_name("0");
}

[[noreturn]] void refuse_pooler_config(const std::string& why) {
  throw invalid_argument("--pooler-config: " + why, "pooler-config");
}

void read_pooler_config(EngineConfig& config) {
  const auto json = nlohmann::json::parse(config.pooler_config, nullptr, false);
  if (!json.is_object()) refuse_pooler_config("not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (key == "pooling_type" || key == "seq_pooling_type") {
      const std::string name = value.is_string() ? value.get<std::string>() : value.dump();
      if (name != "LAST" && name != "MEAN")
        refuse_pooler_config(fmt::format("{} {}: LAST and MEAN are known", key, name));
      config.pooling = name == "LAST" ? Pooling::kLast : Pooling::kMean;
    } else if (key == "normalize" || key == "use_activation") {
      if (!value.is_boolean()) refuse_pooler_config(key + " must be true or false");
      config.normalize_embeddings = value.get<bool>();
    } else {
      refuse_pooler_config("unknown key " + key + "; there are pooling_type and normalize");
    }
  }
}

}  // namespace

void add_engine_options(OptionTable& table, EngineConfig& config) {
  add_model_options(table, config);
  add_memory_options(table, config);
  add_scheduler_options(table, config);
  add_device_options(table, config);
  add_ignored_options(table);
  add_refused_options(table);
}

void finish_engine_options(EngineConfig& config) {
  if (!config.pooler_config.empty()) read_pooler_config(config);
  if (config.load_format != "dummy") config.load_format = "auto";
  if (!config.numa_bind && !config.numa_bind_nodes.empty()) {
    throw invalid_argument("--numa-bind-nodes: needs --numa-bind", "numa-bind-nodes");
  }
  if (config.numa_bind_nodes.size() > 1 || config.numa_bind_cpus.size() > 1) {
    throw invalid_argument("--numa-bind-nodes, --numa-bind-cpus: one value, since there is one device (limit 1)",
                           "numa-bind-nodes");
  }
}

}  // namespace quire
