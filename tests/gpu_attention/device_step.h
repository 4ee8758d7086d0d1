#pragma once
// Runs a step of tests/attention/attention_case.h on the GPU: a backend of host memory around the one of device memory.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "attention/attention_case.h"
#include "attention/phased_gpu.h"
#include "gpu/device.h"
#include "gpu/memory.h"

namespace quire::testing {

// A copy of host memory on the device.
class DeviceCopy {
 public:
  DeviceCopy() = default;
  DeviceCopy(gpu::Stream& stream, const void* data, size_t bytes) : memory_(bytes) {
    if (bytes > 0) stream.copy_to_device(memory_.data(), data, bytes, "test data");
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_.data());
  }
  template <class T>
  static DeviceCopy of(gpu::Stream& stream, std::span<const T> values) {
    return DeviceCopy(stream, values.data(), values.size_bytes());
  }

 private:
  gpu::DeviceMemory memory_;
};

// The batch of a step on the device. `requests` and the ranges are the host's.
class DeviceBatch {
 public:
  DeviceBatch(gpu::Stream& stream, const AttentionBatch& batch)
      : offsets_(DeviceCopy::of(stream, batch.query_offsets)),
        lens_(DeviceCopy::of(stream, batch.kv_lens)),
        rows_(DeviceCopy::of(stream, batch.block_table_rows)),
        tables_(stream, batch.block_tables,
                batch.kv_lens.size() * static_cast<size_t>(batch.block_table_stride) * sizeof(int32_t)),
        batch_(batch) {
    batch_.query_offsets = {offsets_.as<const int32_t>(), batch.query_offsets.size()};
    batch_.kv_lens = {lens_.as<const int32_t>(), batch.kv_lens.size()};
    batch_.block_table_rows = {rows_.as<const int32_t>(), batch.block_table_rows.size()};
    batch_.block_tables = tables_.as<const int32_t>();
    batch_.slots = {};
  }
  const AttentionBatch& view() const { return batch_; }

 private:
  DeviceCopy offsets_, lens_, rows_, tables_;
  AttentionBatch batch_;
};

class DeviceCache {
 public:
  DeviceCache(gpu::Stream& stream, const PagedKv& kv)
      : k_(stream, kv.k, static_cast<size_t>(k_plane_bytes(kv))),
        v_(stream, kv.v, static_cast<size_t>(v_plane_bytes(kv))),
        k_scales_(stream, kv.k_scales, static_cast<size_t>(plane_scales(kv)) * sizeof(float)),
        v_scales_(stream, kv.v_scales, static_cast<size_t>(plane_scales(kv)) * sizeof(float)),
        kv_(kv) {
    kv_.k = k_.as<void>();
    kv_.v = v_.as<void>();
    kv_.k_scales = k_scales_.as<float>();
    kv_.v_scales = v_scales_.as<float>();
  }
  const PagedKv& view() const { return kv_; }

 private:
  DeviceCopy k_, v_, k_scales_, v_scales_;
  PagedKv kv_;
};

// `joined`: the phases are given as one extend.
class HostMemoryBackend final : public AttentionBackend {
 public:
  HostMemoryBackend(gpu::Stream& stream, const AttentionBackend& backend, bool joined = false)
      : stream_(stream), backend_(backend), joined_(joined) {}

  std::string_view name() const override { return backend_.name(); }
  std::unique_ptr<AttentionPlan> make_plan(const AttentionGroup& group, int32_t max_requests,
                                           int32_t max_tokens) const override {
    auto plan = std::make_unique<Plan>();
    plan->inner = backend_.make_plan(group, max_requests, max_tokens);
    plan->heads = group.heads;
    plan->scratch = gpu::DeviceMemory(backend_.workspace_bytes(group, max_requests, max_tokens));
    return plan;
  }
  void plan(const AttentionBatch& batch, AttentionPlan& out) const override {
    auto& plan = static_cast<Plan&>(out);
    AttentionBatch seen = batch;
    if (joined_) {
      seen.extend = {};
      for (const PhaseRange* range : {&batch.decode, &batch.extend, &batch.prefill}) {
        seen.extend.requests += range->requests;
        seen.extend.tokens += range->tokens;
        seen.extend.max_query_len = std::max(seen.extend.max_query_len, range->max_query_len);
        seen.extend.max_kv_len = std::max(seen.extend.max_kv_len, range->max_kv_len);
      }
      seen.decode = seen.prefill = {};
    }
    plan.tokens = batch.query_offsets.back();
    plan.batch = std::make_unique<DeviceBatch>(stream_, seen);
    backend_.plan(plan.batch->view(), *plan.inner);
  }
  size_t workspace_bytes(const AttentionGroup&, int32_t, int32_t) const override { return 0; }
  void run(const AttentionPlan& in, const ConstHeadRows& q, const AttentionLayer& layer, const HeadRows& out,
           Workspace&, ThreadPool& pool) const override {
    const auto& plan = static_cast<const Plan&>(in);
    const auto bytes = [&](int64_t row_stride, DType dtype) {
      return static_cast<size_t>(plan.tokens * row_stride * block_bytes(dtype));
    };
    const DeviceCopy queries(stream_, q.data, bytes(q.row_stride, q.dtype));
    const DeviceCopy result(stream_, out.data, bytes(out.row_stride, out.dtype));
    const DeviceCopy sinks(stream_, layer.sinks,
                           layer.sinks == nullptr ? 0 : static_cast<size_t>(plan.heads) * sizeof(float));
    const DeviceCache cache(stream_, layer.kv);
    ConstHeadRows device_q = q;
    HeadRows device_out = out;
    device_q.data = queries.as<const void>();
    device_out.data = result.as<void>();
    Workspace workspace(plan.scratch.data(), plan.scratch.bytes());
    backend_.run(*plan.inner, device_q, {cache.view(), sinks.as<const float>()}, device_out, workspace, pool);
    stream_.copy_to_host(out.data, device_out.data, bytes(out.row_stride, out.dtype), "test result");
    stream_.wait("test result");
  }

 private:
  struct Plan final : AttentionPlan {
    std::unique_ptr<AttentionPlan> inner;
    std::unique_ptr<DeviceBatch> batch;
    gpu::DeviceMemory scratch;
    int32_t heads = 0;
    int64_t tokens = 0;
  };
  gpu::Stream& stream_;
  const AttentionBackend& backend_;
  bool joined_;
};

// QUIRE_TEST_BATCHES, for runs under a checker that slows kernels down.
inline uint32_t test_batches(uint32_t all) {
  const char* value = std::getenv("QUIRE_TEST_BATCHES");
  return value == nullptr ? all : std::min(all, static_cast<uint32_t>(std::strtoul(value, nullptr, 10)));
}

}  // namespace quire::testing
