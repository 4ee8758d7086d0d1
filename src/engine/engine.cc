#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/admission.h"
#include "engine/engine_loop.h"
#include "engine/parts.h"
#include "engine/stats_impl.h"

namespace quire {
namespace {

std::string gib(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30)); }

std::string with_commas(int64_t n) {
  std::string digits = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

AttentionGroup attention_group(const EngineConfig& config, const EngineParts& parts) {
  const EngineDevice& device = *parts.device;
  AttentionGroup group = parts.model->attention_group();
  group.block_size = config.block_size;
  group.layout = config.kv_cache_layout == "shuffle" ? KvLayout::kShuffle : KvLayout::kPlain;
  const DType automatic = device.automatic_kv_dtype(device.compute_dtype(config.dtype), parts.model->config());
  group.kv_dtype = parse_kv_dtype(config.kv_cache_dtype, automatic);
  group.kv_scaling = kv_scaling_of(group.kv_dtype);
  return group;
}

std::unique_ptr<AttentionBackend> attention_backend(const EngineConfig& config, EngineDevice& device,
                                                    const AttentionGroup& group) {
  const bool gather = config.extend_strategy == "gather";
  return device.make_backend(config.attention_backend, group,
                             gather ? ExtendStrategy::kGather : ExtendStrategy::kPaged);
}

// EOS ids come from a file: those outside the vocabulary would be indices outside a row of logits.
std::vector<int32_t> known_ids(std::vector<int32_t> ids, int64_t vocab_size) {
  std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= vocab_size; });
  return ids;
}

}  // namespace

struct Engine::Impl {
  EngineConfig config;
  const EngineParts parts;
  const std::vector<int32_t> eos_ids;
  const AttentionGroup group;
  const std::unique_ptr<AttentionBackend> backend;
  std::unique_ptr<KvCache> kv;
  std::unique_ptr<BlockPool> pool;
  std::unique_ptr<BlockTables> tables;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Runner> runner;
  std::unique_ptr<EngineMetrics> metrics;
  const std::shared_ptr<EngineQueue> queue;
  std::unique_ptr<EngineLoop> loop;
  AdmissionLimits limits;
  std::atomic<uint64_t> next_number{0};
  std::atomic<bool> alive{true};
  std::thread thread;

  // fit_context: max_model_len is the model's, and may be lowered to what the memory holds.
  Impl(EngineConfig c, bool fit_context, EngineParts p);
  ~Impl();
  RunnerOptions runner_options() const {
    RunnerOptions options;
    options.max_num_seqs = config.max_num_seqs;
    options.max_num_batched_tokens = config.max_num_batched_tokens;
    options.max_logits_rows = config.max_num_seqs + kPromptLogprobRows;
    options.max_hidden_rows = std::min(config.max_num_batched_tokens, config.max_num_seqs + kMeanPoolingRows);
    options.blocks_per_sequence = (config.max_model_len + group.block_size - 1) / group.block_size;
    return options;
  }
  void make_cache(bool fit_context);
  void make_scheduler();
  void make_metrics();
};

void Engine::Impl::make_cache(bool fit_context) {
  const Model& model = *parts.model;
  const int64_t layers = model.config().layers;
  const RunnerOptions options = runner_options();
  const EngineDevice::RunnerMemory runner_memory = parts.device->runner_memory(model, *backend, group, options);
  const KvBudget budget = parts.device->kv_budget(config, runner_memory);
  if (fit_context) {
    const int64_t most = choose_kv_blocks(config, group, layers, budget) * group.block_size;
    if (most > 0 && most < config.max_model_len) {
      log_warning(
          fmt::format("the KV cache holds {} tokens: requests are limited to that many of the model's {} "
                      "(--max-model-len, --kv-cache-memory-bytes)",
                      most, config.max_model_len));
      config.max_model_len = most;
    }
  }
  const int64_t blocks = plan_kv_blocks(config, group, layers, budget);
  const int64_t tokens = blocks * group.block_size;
  log_info(
      fmt::format("memory of the {}: weights {}; KV cache {} ({} blocks of {} tokens, {}), "
                  "activations {}, logits {}; available {}",
                  parts.device->name(), gib(static_cast<int64_t>(model.weight_bytes())),
                  gib(blocks * kv_block_bytes(group, layers)), blocks, group.block_size, dtype_name(group.kv_dtype),
                  gib(static_cast<int64_t>(runner_memory.activations)), gib(static_cast<int64_t>(runner_memory.logits)),
                  gib(budget.available)));
  log_info(fmt::format("{} KV cache size: {} tokens, Maximum concurrency for {} tokens per request: {:.2f}x",
                       parts.device->name(), with_commas(tokens), with_commas(config.max_model_len),
                       static_cast<double>(tokens) / static_cast<double>(config.max_model_len)));
  kv = std::make_unique<KvCache>(group, layers, blocks,
                                 parts.device->allocate_kv(KvCache::bytes(group, layers, blocks)));
  std::random_device random;
  const uint64_t key = uint64_t{random()} << 32 | random();
  pool = std::make_unique<BlockPool>(
      BlockPool::Options{static_cast<int32_t>(blocks), group.block_size, config.enable_prefix_caching, key});
  tables =
      std::make_unique<BlockTables>(static_cast<int32_t>(config.max_num_seqs), runner_options().blocks_per_sequence);
  limits = {config.max_model_len, tokens, static_cast<int32_t>(model.config().vocab_size), config.max_logprobs};
}

void Engine::Impl::make_scheduler() {
  SchedulerOptions options;
  options.max_num_seqs = config.max_num_seqs;
  options.max_num_batched_tokens = config.max_num_batched_tokens;
  options.max_prompt_logprob_rows = kPromptLogprobRows;
  options.max_mean_pooling_rows = kMeanPoolingRows;
  options.chunked_prefill = config.enable_chunked_prefill;
  options.prefix_caching = config.enable_prefix_caching;
  options.priority = config.scheduling_policy == "priority";
  scheduler = std::make_unique<Scheduler>(options, *pool, *tables);
}

void Engine::Impl::make_metrics() {
  metrics = std::make_unique<EngineMetrics>(config.served_model_name[0], config.max_model_len);
  const auto flag = [](bool on) { return on ? "True" : "False"; };
  metrics->impl().cache_config_labels = prometheus_labels(
      {{"attention_backend", backend->name()},
       {"block_size", std::to_string(group.block_size)},
       {"cache_dtype", dtype_name(group.kv_dtype)},
       {"device", parts.device->name()},
       {"enable_prefix_caching", flag(config.enable_prefix_caching)},
       {"gpu_memory_utilization", fmt::format("{}", config.gpu_memory_utilization)},
       {"kv_cache_layout", config.kv_cache_layout},
       {"num_gpu_blocks", std::to_string(kv->blocks())},
       {"num_gpu_blocks_override",
        config.num_gpu_blocks_override > 0 ? std::to_string(config.num_gpu_blocks_override) : "None"}});
}

Engine::Impl::Impl(EngineConfig c, bool fit_context, EngineParts p)
    : config(std::move(c)),
      parts(std::move(p)),
      eos_ids(known_ids(parts.model->config().eos_token_ids, parts.model->config().vocab_size)),
      group(attention_group(config, parts)),
      backend(attention_backend(config, *parts.device, group)),
      queue(std::make_shared<EngineQueue>(config.max_num_queued_reqs + config.max_num_seqs)) {
  log_info(fmt::format("Using {} attention backend, {} KV layout, {}", backend->name(), config.kv_cache_layout,
                       parts.device->description()));
  make_cache(fit_context);
  make_scheduler();
  runner = parts.device->make_runner(*parts.model, *backend, group, *kv, *tables, runner_options());
  make_metrics();
  loop = std::make_unique<EngineLoop>(EngineLoop::Options{config.max_model_len, config.log_stats, parts.device->name()},
                                      *scheduler, *runner, *pool, *queue, *metrics);
  thread = std::thread([this] {
    try {
      parts.device->use_here();
      loop->run();
    } catch (const std::exception& error) {
      log_error(fmt::format("the engine thread can't use its device: {}", error.what()));
    }
    alive = false;
  });
}

Engine::Impl::~Impl() {
  if (!thread.joinable()) return;
  queue->push({EngineCommand::Kind::kExit});
  thread.join();
}

Engine::Engine(EngineConfig config) {
  const bool fit_context = config.max_model_len <= 0;
  EngineParts parts = load_engine_parts(config);
  impl_ = std::make_unique<Impl>(std::move(config), fit_context, std::move(parts));
}

Engine::Engine(EngineConfig config, EngineParts parts) {
  const bool fit_context = config.max_model_len <= 0;
  fill_in_defaults(config, parts.model->config(), *parts.device);
  impl_ = std::make_unique<Impl>(std::move(config), fit_context, std::move(parts));
}

Engine::~Engine() = default;

const EngineConfig& Engine::config() const { return impl_->config; }
const ModelConfig& Engine::model_config() const { return impl_->parts.model->config(); }
const GenerationConfig& Engine::generation_config() const { return impl_->parts.generation_config; }
const ChatFormat& Engine::chat_format() const { return impl_->parts.chat_format; }
const std::string& Engine::model_name() const { return impl_->config.served_model_name[0]; }
int64_t Engine::max_model_len() const { return impl_->config.max_model_len; }
const Model& Engine::model() const { return *impl_->parts.model; }
const EngineDevice& Engine::device() const { return *impl_->parts.device; }
AttentionGroup Engine::attention() const { return impl_->group; }
EngineMetrics& Engine::metrics() { return *impl_->metrics; }

const Tokenizer& Engine::tokenizer() const {
  if (!impl_->parts.tokenizer) {
    throw invalid_argument(fmt::format("model {} has no tokenizer; send token ids", model_name()), "prompt");
  }
  return *impl_->parts.tokenizer;
}

std::shared_ptr<Generation> Engine::submit(GenerateRequest input) {
  Impl& impl = *impl_;
  admit_request(input, impl.limits);
  // As much as possible is allocated here, on the submitter's thread: what fails, fails for it alone.
  const uint64_t number = impl.next_number.fetch_add(1);
  if (input.id.empty()) input.id = fmt::format("request-{}", number);
  const auto client = std::make_shared<GenerationState>(input.id, number, input.params.n, impl.queue);
  if (input.params.prompt_logprobs) client->prompt_logprobs_to_fill().resize(input.prompt_ids.size());
  const bool pooled = input.pooling != Pooling::kNone;
  std::unique_ptr<EngineRequest> request =
      make_engine_request(std::move(input), number, impl.config.seed, impl.eos_ids);
  if (pooled) {
    const auto hidden_size = static_cast<size_t>(impl.parts.model->config().hidden_size);
    client->embedding_to_fill().resize(hidden_size);
    request->hidden_sum.resize(hidden_size);
  }
  request->client = client;
  switch (impl.queue->submit(std::move(request))) {
    case EngineQueue::Entry::kAccepted:
      break;
    case EngineQueue::Entry::kClosed:
      impl.metrics->impl().count_rejection(Rejection::kShutdown);
      throw Error(ErrorKind::kUnavailable, "the server is shutting down");
    case EngineQueue::Entry::kFull:
      impl.metrics->impl().count_rejection(Rejection::kQueueFull);
      throw Error(ErrorKind::kUnavailable, fmt::format("the queue is full: {} sequences wait (--max-num-queued-reqs)",
                                                       impl.config.max_num_queued_reqs));
  }
  return hand_out(client);
}

void Engine::shutdown(std::chrono::milliseconds timeout) {
  impl_->queue->close();
  if (impl_->queue->wait_until_empty(EngineClock::now() + timeout)) return;
  impl_->queue->push({EngineCommand::Kind::kAbortAll});
  impl_->queue->wait_until_empty(EngineQueue::kForever);
}

bool Engine::healthy() const {
  constexpr int64_t kStuckMs = 10'000;
  constexpr int32_t kTooManyFailures = 3;
  return impl_->alive && impl_->loop->step_age_ms() < kStuckMs && impl_->loop->failed_in_a_row() < kTooManyFailures;
}

void Engine::reset_prefix_cache() { impl_->queue->push({EngineCommand::Kind::kResetPrefixCache}); }

}  // namespace quire
