#include "attention/phased_gpu.h"

#include <algorithm>

#include "gpu/memory.h"
#include "kernels/attention/gpu/attention.h"

namespace quire {
namespace {

class GpuPlan final : public AttentionPlan {
 public:
  GpuPlan(const AttentionGroup& group, int32_t max_requests, gpu::Stream& stream)
      : group_(group),
        slopes_(group.alibi_slopes.size_bytes()),
        counters_(static_cast<size_t>(gpu::attention_decode_counters(group.heads, group.kv_heads, max_requests)) *
                  sizeof(uint32_t)) {
    stream.zero(counters_.data(), counters_.bytes());
    if (group.alibi_slopes.empty()) return;
    stream.copy_to_device(slopes_.data(), group.alibi_slopes.data(), slopes_.bytes(), "ALiBi slopes");
    stream.wait("ALiBi slopes");
  }

  // Extends and prefills are neighbours and the same kind of work.
  void plan(const AttentionBatch& batch) {
    decodes_ = requests_of(batch, batch.decode);
    one_row_ = batch.decode.max_query_len <= 1;
    PhaseRange rest = batch.extend.requests > 0 ? batch.extend : batch.prefill;
    rest.requests = batch.extend.requests + batch.prefill.requests;
    rest.tokens = batch.extend.tokens + batch.prefill.tokens;
    rest.max_kv_len = std::max(batch.extend.max_kv_len, batch.prefill.max_kv_len);
    extends_ = requests_of(batch, rest);
    has_context_ = batch.extend.requests > 0;
  }

  AttentionArgs args(const ConstHeadRows& q, const AttentionLayer& layer, const HeadRows& out) const {
    AttentionArgs args;
    args.heads = group_.heads;
    args.scale = group_.scale;
    args.soft_cap = group_.soft_cap;
    args.window = group_.window;
    args.alibi_slopes = static_cast<const float*>(slopes_.data());
    args.sinks = layer.sinks;
    args.kv = layer.kv;
    args.q = q;
    args.out = out;
    return args;
  }
  const gpu::AttentionRequests& decodes() const { return decodes_; }
  const gpu::AttentionRequests& extends() const { return extends_; }
  uint32_t* counters() const { return static_cast<uint32_t*>(counters_.data()); }
  const AttentionGroup& group() const { return group_; }
  bool has_context() const { return has_context_; }  // some of the extends
  bool one_row() const { return one_row_; }          // each decode has one query

 private:
  static gpu::AttentionRequests requests_of(const AttentionBatch& batch, const PhaseRange& range) {
    gpu::AttentionRequests requests;
    if (range.requests == 0) return requests;
    requests.query_offsets = batch.query_offsets.data() + range.first_request;
    requests.kv_lens = batch.kv_lens.data() + range.first_request;
    requests.block_tables = batch.block_tables;
    requests.block_table_stride = batch.block_table_stride;
    requests.block_table_rows = batch.block_table_rows.data() + range.first_request;
    requests.requests = range.requests;
    requests.first_token = range.first_token;
    requests.tokens = range.tokens;
    requests.max_kv_len = range.max_kv_len;
    return requests;
  }

  AttentionGroup group_;
  gpu::DeviceMemory slopes_;
  gpu::DeviceMemory counters_;  // zero between launches
  gpu::AttentionRequests decodes_, extends_;
  bool one_row_ = true, has_context_ = false;
};

class GpuPhasedBackend final : public AttentionBackend {
 public:
  GpuPhasedBackend(gpu::Stream& stream, const gpu::DeviceInfo& device, ExtendStrategy strategy,
                   gpu::AttentionKernelChoice choice)
      : stream_(stream),
        device_(device),
        strategy_(strategy),
        choice_(choice),
        blocks_(gpu::attention_decode_blocks(device)) {}

  std::string_view name() const override { return "PHASED"; }
  bool can_capture_decodes() const override { return true; }

  std::unique_ptr<AttentionPlan> make_plan(const AttentionGroup& group, int32_t max_requests, int32_t) const override {
    return std::make_unique<GpuPlan>(group, max_requests, stream_);
  }

  void plan(const AttentionBatch& batch, AttentionPlan& plan) const override {
    static_cast<GpuPlan&>(plan).plan(batch);
  }

  // Decodes, rows that are cut along the keys and gathered contexts take it one after another.
  size_t workspace_bytes(const AttentionGroup& group, int32_t max_requests, int32_t max_tokens) const override {
    const int64_t floats = std::max(gpu::attention_decode_state_floats(group.v_head_dim, blocks_),
                                    gpu::attention_row_floats(group.v_head_dim, device_));
    int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
    if (strategy_ == ExtendStrategy::kGather) {
      bytes = std::max(bytes, gpu::attention_gather_bytes(kv_of(group, 0), group.heads,
                                                          {max_requests, max_tokens, round_tokens(group), nullptr}));
    }
    return static_cast<size_t>(bytes);
  }

  void run(const AttentionPlan& in, const ConstHeadRows& q, const AttentionLayer& layer, const HeadRows& out,
           Workspace& workspace, ThreadPool&) const override {
    const auto& plan = static_cast<const GpuPlan&>(in);
    const AttentionArgs args = plan.args(q, layer, out);
    if (choice_ == gpu::AttentionKernelChoice::kBest && plan.one_row() && gpu::attention_decode_fits(args)) {
      run_decodes(plan, args, workspace);
    } else {
      run_rows(args, plan.decodes(), workspace);
    }
    if (strategy_ == ExtendStrategy::kGather && plan.has_context()) {
      run_gathered(plan, args, workspace);
    } else {
      run_rows(args, plan.extends(), workspace);
    }
  }

 private:
  static int32_t round_tokens(const AttentionGroup& group) {
    return kGatherTokens / group.block_size * group.block_size;
  }

  void run_decodes(const GpuPlan& plan, const AttentionArgs& args, Workspace& workspace) const {
    if (plan.decodes().requests == 0) return;
    const WorkspaceScope scope(workspace);
    gpu::DecodeSplit split;
    split.blocks = blocks_;
    split.states =
        workspace.take<float>(static_cast<size_t>(gpu::attention_decode_state_floats(args.kv.v_head_dim, blocks_)));
    split.counters = plan.counters();
    gpu::attention_decode(args, plan.decodes(), split, stream_);
  }

  void run_rows(const AttentionArgs& args, const gpu::AttentionRequests& requests, Workspace& workspace) const {
    if (requests.requests == 0) return;
    const WorkspaceScope scope(workspace);
    auto* const states =
        workspace.take<float>(static_cast<size_t>(gpu::attention_row_floats(args.kv.v_head_dim, device_)));
    gpu::attention_rows(args, requests, states, device_, choice_, stream_);
  }

  void run_gathered(const GpuPlan& plan, const AttentionArgs& args, Workspace& workspace) const {
    const gpu::AttentionRequests& requests = plan.extends();
    const WorkspaceScope scope(workspace);
    gpu::GatherMemory memory{requests.requests, requests.tokens, round_tokens(plan.group()), nullptr};
    memory.data =
        workspace.take<std::byte>(static_cast<size_t>(gpu::attention_gather_bytes(args.kv, args.heads, memory)));
    gpu::attention_gathered_rows(args, requests, memory, choice_, stream_);
  }

  gpu::Stream& stream_;
  gpu::DeviceInfo device_;
  ExtendStrategy strategy_;
  gpu::AttentionKernelChoice choice_;
  int32_t blocks_;  // of split decodes
};

}  // namespace

std::unique_ptr<AttentionBackend> make_gpu_phased_backend(gpu::Stream& stream, const gpu::DeviceInfo& device,
                                                          ExtendStrategy strategy, gpu::AttentionKernelChoice choice) {
  return std::make_unique<GpuPhasedBackend>(stream, device, strategy, choice);
}

}  // namespace quire
