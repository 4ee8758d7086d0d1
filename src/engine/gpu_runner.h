#pragma once
// The runner of a GPU. A step is one copy of what was staged to the device, then kernels in order: decode-only steps
// are replayed from graphs, one for each of a list of batch sizes, recorded when a size comes the second time. Sampled
// tokens stay on the device for the next step, so that it can be staged and submitted before they are known here.
#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "attention/backend.h"
#include "engine/block_tables.h"
#include "engine/gpu_staging.h"
#include "engine/kv_cache.h"
#include "engine/logits_sampler.h"
#include "engine/pooling.h"
#include "engine/runner.h"
#include "engine/step_order.h"
#include "gpu/context.h"
#include "gpu/memory.h"
#include "kernels/sample/gpu/sample.h"
#include "kernels/step_input/gpu/step_input.h"
#include "model/model.h"
#include "sample/gpu_rows.h"

namespace quire {

class GpuRunner final : public Runner {
 public:
  struct Modes {
    bool graphs = true, log_transfers = false;
  };
  GpuRunner(gpu::Context& context, const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
            const KvCache& kv, BlockTables& tables, ThreadPool& pool, const RunnerOptions& options, const Modes& modes);
  ~GpuRunner() override;

  void submit(const std::vector<ScheduledSequence>& step) override;
  std::vector<Sampled>& collect() override;
  bool may_run_ahead() const override;
  void forget(const Sequence& sequence) override;

  // Bytes of device memory that the constructor takes, without the logits.
  static size_t activation_bytes(const Model& model, const AttentionBackend& backend, const AttentionGroup& group,
                                 const RunnerOptions& options);
  static size_t logits_bytes(const Model& model, const RunnerOptions& options);

 private:
  // A step from its submission until it is collected.
  struct Flight {
    gpu::PinnedMemory staging;  // input, in the layout of the step
    gpu::PinnedMemory results;  // of sampling on the device, in a ResultLayout
    gpu::PinnedMemory hidden;   // states of the rows that are pooled
    gpu::Event done;
    std::vector<Sampled> sampled;
    std::vector<LogitsRow> rows;  // one for each row of logits that is not padding
    std::vector<HiddenRows> pooled;
    const gpu::SampleRow* parameters;  // of the same rows, in the staging buffer
    int32_t result_rows = 0, max_logprobs = 0;
    bool sampled_by_host = false;
    bool needs_output = false;  // a row of the next step depends on this one's tokens in ways that the host has to see
  };
  // A step's sizes, and where its pieces lie in the staging buffers.
  struct Shape {
    int32_t requests = 0, tokens = 0, logits_rows = 0, hidden_rows = 0;  // as computed, with padding
    int32_t deltas = 0, delta_blocks = 0;
    PhaseRange decode, extend, prefill;
    bool every_row = false;      // logits of every token are wanted, in order
    bool graph = false;          // padded, and the same launches as any other step of this size
    bool host_sampling = false;  // for what the device's buffers have no room for
    GpuRowSizes sampling;
    size_t query_offsets, kv_lens, table_rows, ids, logits, hidden, delta_list, delta_ids;
    size_t sample_rows, sample_tokens, sample_ids, bias_ids, bias_values, bytes;
  };
  // Where the results of `rows` rows lie, on the device and in pinned memory.
  struct ResultLayout {
    size_t rows = 0, top_ids, top_logprobs, bytes;
    ResultLayout(int64_t rows, int64_t max_logprobs);
  };

  Shape shape_of(const std::vector<ScheduledSequence>& step);
  void lay_out(Shape& shape) const;
  void stage(const Shape& shape, Flight& flight);
  void stage_sampling(Shape& shape, Flight& flight, gpu::SampleArgs& args) const;
  bool write_sample_rows(const Flight& flight, GpuRowWriter& writer) const;
  template <class T>
  T* staged(const Flight& flight, size_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(flight.staging.data()) + offset);
  }
  template <class T>
  T* on_device(size_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(staging_.data()) + offset);
  }
  void compute(const Shape& shape);
  void sample_on_device(const gpu::SampleArgs& args);
  void launch(const Shape& shape, const gpu::SampleArgs& sampling, Flight& flight);
  void launch_graph(const Shape& shape, const gpu::SampleArgs* sampling);
  void sample_on_host(Flight& flight);
  static void take_results(Flight& flight);
  void pool(const Flight& flight) const;
  void log_counts();

  gpu::Context& context_;
  const Model& model_;
  const AttentionBackend& backend_;
  const KvCache& kv_;
  BlockTables& tables_;
  ThreadPool& pool_;
  RunnerOptions options_;
  Modes modes_;
  int64_t vocab_size_;
  int64_t hidden_bytes_;  // of a row
  int32_t block_size_;
  std::unique_ptr<AttentionPlan> plan_;

  // Device memory.
  gpu::DeviceMemory staging_, block_tables_, token_ids_, positions_, slots_, sampled_tokens_, logits_,
      workspace_memory_, results_, hidden_, sample_state_, sample_workspace_;
  Workspace workspace_;

  std::array<Flight, 2> flights_;
  int64_t submitted_ = 0, collected_ = 0;
  StepOrder order_;
  // Steps of one padded size with sampling of the same kinds of rows, if any, have one graph. Empty: seen once.
  using GraphKey = std::tuple<int32_t, bool, bool>;  // padded requests; greedy rows, drawn rows are sampled in it
  struct Recording {
    gpu::Graph graph;
    bool refused = false;
  };
  std::map<GraphKey, Recording> graphs_;
  LogitsSampler sampler_;
  gpu::PinnedMemory host_logits_;
};

}  // namespace quire
