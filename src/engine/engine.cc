#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>
#include <thread>
#include <utility>

#include "attention/registry.h"
#include "base/cpu_isa.h"
#include "base/error.h"
#include "base/log.h"
#include "base/numa.h"
#include "checkpoint/mapped_file.h"
#include "engine/admission.h"
#include "engine/engine_loop.h"
#include "engine/progress.h"
#include "engine/stats.h"

namespace quire {
namespace {

constexpr int64_t kDefaultQueueLimit = 1024;
constexpr int64_t kPromptLogprobRows = 256;

ComputeDType parse_dtype(const std::string& name) {
  if (name == "auto") return ComputeDType::kAuto;
  if (name == "float32" || name == "float") return ComputeDType::kF32;
  if (name == "bfloat16") return ComputeDType::kBF16;
  throw invalid_argument(
      fmt::format("--dtype {} is not supported on the CPU; there are auto, float32 and bfloat16", name), "dtype");
}

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerFiles files) {
  if (files.gguf) {
    TokenizerFiles::Gguf& g = *files.gguf;
    GgufVocabulary v;
    v.model = std::move(g.model);
    v.pre = std::move(g.pre);
    v.tokens = std::move(g.tokens);
    v.merges = std::move(g.merges);
    v.scores = std::move(g.scores);
    v.token_types = std::move(g.token_types);
    v.bos_id = g.bos_id;
    v.eos_id = g.eos_id;
    v.add_bos = g.add_bos;
    v.add_eos = g.add_eos;
    v.add_space_prefix = g.add_space_prefix;
    return tokenizer_from_gguf(v);
  }
  if (!files.tokenizer_json.empty()) return tokenizer_from_json(files.tokenizer_json, files.tokenizer_config_json);
  return nullptr;
}

// What reads text, loaded beside the weights. A model without it still runs on token ids.
struct TextParts {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
};

// --chat-template: a template as such, or the file that holds it.
std::string template_source(const std::string& flag) {
  if (flag.find('{') != std::string::npos) return flag;
  constexpr size_t kMaxBytes = size_t{1} << 20;
  return read_text_file(flag, kMaxBytes);
}

TextParts load_text(const Checkpoint& checkpoint, const EngineConfig& config) {
  TextParts parts;
  TokenizerFiles files;
  if (config.tokenizer.empty()) {
    files = checkpoint.read_tokenizer_files();
  } else {
    files = open_tokenizer_files(config.tokenizer);
  }
  const std::string source = files.chat_template;
  parts.tokenizer = make_tokenizer(std::move(files));
  if (!config.chat_template.empty()) {
    parts.chat_template = std::make_unique<ChatTemplate>(template_source(config.chat_template));
  } else if (!source.empty()) {
    try {
      parts.chat_template = std::make_unique<ChatTemplate>(source);
    } catch (const Error& error) {
      log_warning(
          fmt::format("the model's chat template can't be used, chat requests will be refused: {}", error.what()));
    }
  }
  return parts;
}

struct Cpus {
  std::vector<int> pins;  // empty = not pinned
  int threads;
};

Cpus choose_cpus(const EngineConfig& config) {
  Cpus cpus{{}, config.threads};
  if (!config.numa_bind_cpus.empty()) {
    cpus.pins = parse_cpu_list(config.numa_bind_cpus[0], "--numa-bind-cpus");
  } else if (config.numa_bind || !config.numa_bind_nodes.empty()) {
    cpus.pins = bind_to_numa_node(config.numa_bind_nodes.empty() ? -1 : config.numa_bind_nodes[0]);
  }
  if (cpus.threads == 0) {
    cpus.threads = default_thread_count();
    if (!cpus.pins.empty()) cpus.threads = std::min(cpus.threads, static_cast<int>(cpus.pins.size()));
  }
  return cpus;
}

std::string gib(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30)); }

std::string with_commas(int64_t n) {
  std::string digits = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

// A request's random seed where it names none: the engine's seed and its number, mixed as in splitmix64.
uint64_t seed_of(uint64_t seed, uint64_t number) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + number + 0x632be59bd9b4e019u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

struct Engine::Impl {
  EngineConfig config;
  GenerationConfig generation_config;
  std::unique_ptr<Checkpoint> checkpoint;  // for its paths and configs; its weights are packed and their pages dropped
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<Model> model;
  TextParts text;
  std::string model_name;
  AttentionGroup group;
  std::unique_ptr<AttentionBackend> backend;
  std::unique_ptr<KvCache> kv;
  std::unique_ptr<BlockPool> pool;
  std::unique_ptr<BlockTables> tables;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Runner> runner;
  std::unique_ptr<EngineMetrics> metrics;
  std::shared_ptr<EngineQueue> queue = std::make_shared<EngineQueue>();
  std::unique_ptr<EngineLoop> loop;
  AdmissionLimits limits;
  std::atomic<uint64_t> next_number{0};
  std::atomic<int64_t> submitted{0};
  std::atomic<bool> refusing{false};
  std::atomic<bool> alive{true};
  std::thread thread;

  explicit Impl(EngineConfig c);
  ~Impl();
  void fill_defaults();
  void make_cache();
};

void Engine::Impl::fill_defaults() {
  const ModelConfig& model_config = checkpoint->config();
  if (config.max_model_len > model_config.max_position) {
    throw invalid_argument(fmt::format("--max-model-len {} is greater than the model's {} positions",
                                       config.max_model_len, model_config.max_position),
                           "max-model-len");
  }
  if (config.max_model_len <= 0) config.max_model_len = model_config.max_position;
  config.max_num_batched_tokens = std::min(config.max_num_batched_tokens, config.max_num_seqs * config.max_model_len);
  if (!config.enable_chunked_prefill)
    config.max_num_batched_tokens = std::max(config.max_num_batched_tokens, config.max_model_len);
  config.max_num_seqs = std::min(config.max_num_seqs, config.max_num_batched_tokens);
  if (config.max_num_queued_reqs == 0) config.max_num_queued_reqs = kDefaultQueueLimit;
  if (config.served_model_name.empty()) config.served_model_name.push_back(config.model);
  model_name = config.served_model_name[0];
  if (config.generation_config == "auto") generation_config = checkpoint->generation_config();
}

void Engine::Impl::make_cache() {
  const int64_t layers = model->config().layers;
  const int64_t blocks = plan_kv_blocks(config, group, layers, available_memory_bytes());
  const int64_t tokens = blocks * group.block_size;
  log_info(fmt::format("memory: weights {}, KV cache {} ({} blocks of {} tokens, {})",
                       gib(static_cast<int64_t>(model->weight_bytes())), gib(blocks * kv_block_bytes(group, layers)),
                       blocks, group.block_size, dtype_name(group.kv_dtype)));
  log_info(fmt::format("CPU KV cache size: {} tokens, Maximum concurrency for {} tokens per request: {:.2f}x",
                       with_commas(tokens), with_commas(config.max_model_len),
                       static_cast<double>(tokens) / static_cast<double>(config.max_model_len)));
  kv = std::make_unique<KvCache>(group, layers, blocks);
  std::random_device random;
  const uint64_t key = uint64_t{random()} << 32 | random();
  pool = std::make_unique<BlockPool>(
      BlockPool::Options{static_cast<int32_t>(blocks), group.block_size, config.enable_prefix_caching, key});
  const int64_t blocks_per_sequence = (config.max_model_len + group.block_size - 1) / group.block_size;
  tables = std::make_unique<BlockTables>(static_cast<int32_t>(config.max_num_seqs), blocks_per_sequence);
  limits = {config.max_model_len, tokens, static_cast<int32_t>(model->config().vocab_size), config.max_logprobs};
}

Engine::Impl::Impl(EngineConfig c) : config(std::move(c)) {
  const ComputeDType dtype = parse_dtype(config.dtype);
  if (config.model.empty()) {
    config.model = default_model_path();
    log_info(fmt::format("no --model given: using the default, {}", config.model));
  }
  checkpoint = open_checkpoint(config.model, config.load_format == "dummy" ? LoadFormat::kDummy : LoadFormat::kAuto,
                               config.seed);
  fill_defaults();

  const Cpus cpus = choose_cpus(config);
  config.threads = cpus.threads;
  threads = std::make_unique<ThreadPool>(cpus.threads, cpus.pins);
  // Text parts load on a thread of their own while the weights are packed.
  std::future<TextParts> text_parts = std::async(std::launch::async, [this] { return load_text(*checkpoint, config); });
  ModelOptions options;
  options.dtype = dtype;
  options.max_tokens = config.max_num_batched_tokens;
  if (config.show_progress) options.progress = make_progress_bar("Loading weights");
  model = load_model(*checkpoint, options, *threads);
  text = text_parts.get();

  group = model->attention_group();
  group.block_size = config.block_size;
  group.layout = config.kv_cache_layout == "shuffle" ? KvLayout::kShuffle : KvLayout::kPlain;
  const bool narrow = dtype == ComputeDType::kAuto && checkpoint->config().dtype != "quantized";
  group.kv_dtype = parse_kv_dtype(config.kv_cache_dtype, narrow ? ComputeDType::kBF16 : dtype);
  backend = make_attention_backend(config.attention_backend, group);
  log_info(fmt::format("Using {} attention backend, {} KV layout, {} kernels, {} threads", backend->name(),
                       config.kv_cache_layout, cpu_isa_name(cpu_isa()), config.threads));
  make_cache();

  SchedulerOptions scheduling;
  scheduling.max_num_seqs = config.max_num_seqs;
  scheduling.max_num_batched_tokens = config.max_num_batched_tokens;
  scheduling.max_prompt_logprob_rows = kPromptLogprobRows;
  scheduling.chunked_prefill = config.enable_chunked_prefill;
  scheduling.prefix_caching = config.enable_prefix_caching;
  scheduling.priority = config.scheduling_policy == "priority";
  scheduler = std::make_unique<Scheduler>(scheduling, *pool, *tables);
  runner = std::make_unique<Runner>(
      *model, *backend, group, *kv, *tables, *threads,
      RunnerOptions{config.max_num_seqs, config.max_num_batched_tokens, config.max_num_seqs + kPromptLogprobRows});
  log_info(fmt::format("memory: workspace {}", gib(static_cast<int64_t>(runner->workspace_bytes()))));
  metrics = std::make_unique<EngineMetrics>(model_name, config.max_model_len);
  metrics->impl().cache_config_labels = fmt::format(
      "attention_backend=\"{}\",block_size=\"{}\",cache_dtype=\"{}\",enable_prefix_caching=\"{}\",kv_cache_layout=\"{}"
      "\",num_gpu_blocks=\"{}\"",
      backend->name(), group.block_size, dtype_name(group.kv_dtype), config.enable_prefix_caching ? "True" : "False",
      config.kv_cache_layout, kv->blocks());
  loop = std::make_unique<EngineLoop>(EngineLoop::Options{config.max_model_len, config.log_stats}, *scheduler, *runner,
                                      *pool, *queue, *metrics);
  thread = std::thread([this] {
    threads->pin_caller();
    loop->run();
    alive = false;
  });
}

Engine::Impl::~Impl() {
  queue->push({EngineCommand::Kind::kAbortAll, nullptr, 0, 0});
  queue->push({EngineCommand::Kind::kExit, nullptr, 0, 0});
  thread.join();
}

Engine::Engine(EngineConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}
Engine::~Engine() = default;

const EngineConfig& Engine::config() const { return impl_->config; }
const ModelConfig& Engine::model_config() const { return impl_->model->config(); }
const GenerationConfig& Engine::generation_config() const { return impl_->generation_config; }
const std::string& Engine::model_name() const { return impl_->model_name; }
int64_t Engine::max_model_len() const { return impl_->config.max_model_len; }
EngineMetrics& Engine::metrics() { return *impl_->metrics; }

const Tokenizer& Engine::tokenizer() const {
  if (!impl_->text.tokenizer)
    throw invalid_argument(fmt::format("model {} has no tokenizer; send token ids", impl_->model_name), "prompt");
  return *impl_->text.tokenizer;
}

const ChatTemplate* Engine::chat_template() const { return impl_->text.chat_template.get(); }

std::shared_ptr<Generation> Engine::submit(GenerateRequest input) {
  Impl& impl = *impl_;
  if (impl.refusing) throw Error(ErrorKind::kUnavailable, "the server is shutting down");
  admit_request(input, impl.limits);
  if (impl.loop->open_requests() >= impl.config.max_num_queued_reqs + impl.config.max_num_seqs) {
    throw Error(ErrorKind::kUnavailable, fmt::format("the queue is full: {} requests wait (--max-num-queued-reqs)",
                                                     impl.config.max_num_queued_reqs));
  }
  auto request = std::make_unique<EngineRequest>();
  request->number = impl.next_number.fetch_add(1);
  request->arrival = EngineClock::now();
  request->seed =
      input.params.seed ? static_cast<uint64_t>(*input.params.seed) : seed_of(impl.config.seed, request->number);
  if (!input.params.ignore_eos) {
    // A config may name end tokens that the vocabulary does not have: they never come, and must not index logits.
    for (const int32_t id : impl.model->config().eos_token_ids) {
      if (id < impl.limits.vocab_size) request->stop_ids.push_back(id);
    }
  }
  request->stop_ids.insert(request->stop_ids.end(), input.params.stop_token_ids.begin(),
                           input.params.stop_token_ids.end());
  if (input.id.empty()) input.id = fmt::format("request-{}", request->number);
  auto client = std::make_shared<GenerationState>(input.id, request->number, input.params.n, impl.queue);
  request->client = client;
  request->input = std::move(input);
  EngineCommand command{EngineCommand::Kind::kSubmit, std::move(request), 0, 0};
  impl.queue->push(std::move(command));
  return client;
}

void Engine::shutdown(std::chrono::milliseconds timeout) {
  impl_->refusing = true;
  const EngineClock::time_point deadline = EngineClock::now() + timeout;
  constexpr auto kPoll = std::chrono::milliseconds(10);
  while (impl_->loop->open_requests() > 0 && EngineClock::now() < deadline) std::this_thread::sleep_for(kPoll);
  impl_->queue->push({EngineCommand::Kind::kAbortAll, nullptr, 0, 0});
  while (impl_->loop->open_requests() > 0) std::this_thread::sleep_for(kPoll);
}

bool Engine::healthy() const {
  constexpr int64_t kStuckMs = 10'000;
  return impl_->alive && impl_->loop->step_age_ms() < kStuckMs;
}

void Engine::reset_prefix_cache() { impl_->queue->push({EngineCommand::Kind::kResetPrefixCache, nullptr, 0, 0}); }

}  // namespace quire
