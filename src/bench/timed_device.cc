#include "bench/timed_device.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bench/timed_model_device.h"
#include "engine/forwarding_device.h"

namespace quire {
namespace {

// Keys that a query of a step sees, for all queries and requests, and keys that have to be read for them.
struct SeenKeys {
  double pairs = 0, read = 0;
};

SeenKeys seen_keys(const AttentionBatch& batch, int32_t window) {
  SeenKeys seen;
  for (size_t r = 0; r < batch.kv_lens.size(); ++r) {
    const int64_t queries = batch.query_offsets[r + 1] - batch.query_offsets[r];
    const int64_t length = batch.kv_lens[r], context = length - queries;
    if (queries == 0) continue;
    const int64_t most = window > 0 ? window : length;
    // Query i sees min(context + i + 1, most) keys.
    const int64_t growing = std::clamp<int64_t>(most - context, 0, queries);
    const int64_t pairs = growing * context + growing * (growing + 1) / 2 + (queries - growing) * most;
    seen.pairs += static_cast<double>(pairs);
    seen.read += static_cast<double>(std::min(length, most + queries - 1));
  }
  return seen;
}

class TimedPlan final : public AttentionPlan {
 public:
  TimedPlan(std::unique_ptr<AttentionPlan> inner, const AttentionGroup& group)
      : inner(std::move(inner)),
        window(group.window),
        pair_operations(2.0 * group.heads * (group.head_dim + group.v_head_dim)),
        key_bytes(static_cast<double>(kv_block_bytes(group, 1)) / group.block_size) {}

  std::unique_ptr<AttentionPlan> inner;
  int32_t window;
  double pair_operations, key_bytes;  // of a key and its value in one layer
  SeenKeys seen;                      // by the step that was planned
};

class TimedBackend final : public AttentionBackend {
 public:
  TimedBackend(std::unique_ptr<AttentionBackend> inner, OpTimes& times)
      : inner_(std::move(inner)), times_(times), attention_(times.op("attention")) {}

  std::string_view name() const override { return inner_->name(); }
  std::unique_ptr<AttentionPlan> make_plan(const AttentionGroup& group, int32_t max_requests,
                                           int32_t max_tokens) const override {
    return std::make_unique<TimedPlan>(inner_->make_plan(group, max_requests, max_tokens), group);
  }
  void plan(const AttentionBatch& batch, AttentionPlan& plan) const override {
    auto& timed = static_cast<TimedPlan&>(plan);
    times_.begin_op();
    inner_->plan(batch, *timed.inner);
    times_.end_op(OpTimes::kPlan, 0, 0);
    timed.seen = seen_keys(batch, timed.window);
  }
  size_t workspace_bytes(const AttentionGroup& group, int32_t max_requests, int32_t max_tokens) const override {
    return inner_->workspace_bytes(group, max_requests, max_tokens);
  }
  void run(const AttentionPlan& plan, const ConstHeadRows& q, const AttentionLayer& layer, const HeadRows& out,
           Workspace& workspace, ThreadPool& pool) const override {
    const auto& timed = static_cast<const TimedPlan&>(plan);
    times_.begin_op();
    inner_->run(*timed.inner, q, layer, out, workspace, pool);
    times_.end_op(attention_, timed.seen.read * timed.key_bytes, timed.seen.pairs * timed.pair_operations);
  }

 private:
  std::unique_ptr<AttentionBackend> inner_;
  OpTimes& times_;
  size_t attention_;
};

class TimedRunner final : public Runner {
 public:
  TimedRunner(std::unique_ptr<Runner> inner, int64_t vocab_size, OpTimes& times)
      : inner_(std::move(inner)), row_bytes_(static_cast<double>(vocab_size) * sizeof(float)), times_(times) {}

  void submit(const std::vector<ScheduledSequence>& step) override {
    int64_t rows = 0, sampled = 0;
    for (const ScheduledSequence& scheduled : step) {
      rows += scheduled.query_len;
      sampled += scheduled.sampled ? 1 : 0;
    }
    times_.begin_step(rows > static_cast<int64_t>(step.size()) ? OpTimes::kPrefill : OpTimes::kDecode, rows);
    inner_->submit(step);
    times_.end_step(static_cast<double>(sampled) * row_bytes_);
  }
  std::vector<Sampled>& collect() override { return inner_->collect(); }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  std::unique_ptr<Runner> inner_;
  double row_bytes_;
  OpTimes& times_;
};

class TimedDevice final : public ForwardingDevice {
 public:
  TimedDevice(std::unique_ptr<EngineDevice> inner, OpTimes& times)
      : ForwardingDevice(std::move(inner)), times_(times) {}

  std::unique_ptr<ModelDevice> make_model_device(const Checkpoint& checkpoint, const ModelOptions& options) override {
    return make_timed_model_device(ForwardingDevice::make_model_device(checkpoint, options), times_);
  }
  std::unique_ptr<AttentionBackend> make_backend(const std::string& name, const AttentionGroup& group,
                                                 ExtendStrategy strategy) override {
    return std::make_unique<TimedBackend>(ForwardingDevice::make_backend(name, group, strategy), times_);
  }
  std::unique_ptr<Runner> make_runner(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                      const KvCache& kv, BlockTables& tables, const RunnerOptions& options) override {
    return std::make_unique<TimedRunner>(ForwardingDevice::make_runner(model, backend, group, kv, tables, options),
                                         model.config().vocab_size, times_);
  }

 private:
  OpTimes& times_;
};

}  // namespace

std::unique_ptr<EngineDevice> make_timed_device(std::unique_ptr<EngineDevice> device, OpTimes& times) {
  if (device->name() != "CPU") {
    throw invalid_argument("--breakdown is for the CPU (--device cpu): a GPU's ops are not done when they return",
                           "breakdown");
  }
  return std::make_unique<TimedDevice>(std::move(device), times);
}

}  // namespace quire
