#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "bench/gpu_attention_step.h"
#include "bench/random_values.h"
#include "gpu/device.h"
#include "kernels/kv_write/kv_write.h"

namespace quire {
namespace {

constexpr std::string_view kStepData = "data of a step";

DType activation_dtype(DType kv_dtype) {
  const bool wide = kv_dtype == DType::kF32 || kv_dtype == DType::kF16 || kv_dtype == DType::kBF16;
  return wide ? kv_dtype : DType::kBF16;
}

void store_as(DType dtype, std::span<const float> values, std::byte* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, values.data(), values.size_bytes());
    return;
  }
  auto* narrow = reinterpret_cast<uint16_t*>(to);
  for (const float value : values) *narrow++ = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
}

// Memory for a cache, and a 1 after it.
KvMemory allocate_gpu_kv(size_t bytes, gpu::Stream& stream) {
  const auto memory = std::make_shared<gpu::DeviceMemory>(bytes + sizeof(float));
  auto* one = reinterpret_cast<float*>(static_cast<std::byte*>(memory->data()) + bytes);
  const float value = 1.0f;
  stream.copy_to_device(one, &value, sizeof value, kStepData);
  stream.wait(kStepData);
  return {{memory, memory->data()}, one};
}

}  // namespace

GpuAttentionStep::GpuAttentionStep(const AttentionRow& row, int32_t layers, int64_t l2_bytes, gpu::Stream& stream,
                                   ThreadPool& pool)
    : group_(row.group), dtype_(activation_dtype(row.group.kv_dtype)), stream_(stream) {
  const AttentionWork work = attention_work(row);
  const int64_t blocks = step_blocks(row);
  layers = layers_to_visit(layers, work.kv_bytes, l2_bytes);
  check_step_memory(row, layers, blocks, work.tokens, block_bytes(dtype_),
                    static_cast<int64_t>(gpu::free_device_bytes()));
  cache_ = std::make_unique<KvCache>(group_, layers, blocks,
                                     allocate_gpu_kv(KvCache::bytes(group_, layers, blocks), stream));
  batch_ = std::make_unique<StepBatch>(row);
  upload_batch();
  fill(pool);
  make_queries();
}

void GpuAttentionStep::upload_batch() {
  const AttentionBatch& host = batch_->view();
  const size_t table = static_cast<size_t>(batch_->requests()) * static_cast<size_t>(host.block_table_stride);
  const std::span<const int32_t> tables(host.block_tables, table);
  batch_memory_ = gpu::DeviceMemory(
      (host.query_offsets.size() + host.kv_lens.size() + host.block_table_rows.size() + table) * sizeof(int32_t));
  auto* next = static_cast<int32_t*>(batch_memory_.data());
  const auto upload = [&](std::span<const int32_t> values) {
    stream_.copy_to_device(next, values.data(), values.size_bytes(), kStepData);
    return std::span<const int32_t>(std::exchange(next, next + values.size()), values.size());
  };
  device_batch_ = host;
  device_batch_.query_offsets = upload(host.query_offsets);
  device_batch_.kv_lens = upload(host.kv_lens);
  device_batch_.block_table_rows = upload(host.block_table_rows);
  device_batch_.block_tables = upload(tables).data();
  device_batch_.slots = {};
}

// Doubles what is there until the plane is full.
void GpuAttentionStep::fill_plane(void* plane, const void* pattern, int64_t pattern_bytes, int64_t plane_bytes) {
  auto* to = static_cast<std::byte*>(plane);
  int64_t done = std::min(pattern_bytes, plane_bytes);
  stream_.copy_to_device(to, pattern, static_cast<size_t>(done), kStepData);
  for (int64_t bytes; done < plane_bytes; done += bytes) {
    bytes = std::min(done, plane_bytes - done);
    stream_.copy_on_device(to + done, to, static_cast<size_t>(bytes));
  }
}

void GpuAttentionStep::fill(ThreadPool& pool) {
  constexpr int64_t kTokens = 4096, kRun = 256;
  const int64_t blocks = std::min<int64_t>((kTokens + group_.block_size - 1) / group_.block_size, cache_->blocks());
  const KvCache pattern(group_, 1, blocks, allocate_host_kv(KvCache::bytes(group_, 1, blocks)));
  const PagedKv& from = pattern.layers()[0];
  const int64_t k_row = int64_t{from.kv_heads} * from.head_dim, v_row = int64_t{from.kv_heads} * from.v_head_dim;
  RandomValues values(static_cast<size_t>(kRun * std::max(k_row, v_row)));
  std::vector<int64_t> slots(kRun);
  for (int64_t first = 0; first < blocks * from.block_size; first += kRun) {
    const int64_t n = std::min(kRun, blocks * from.block_size - first);
    std::iota(slots.begin(), slots.end(), first);
    const ConstHeadRows k{values.run(), k_row, from.head_dim, DType::kF32};
    const ConstHeadRows v{values.run(), v_row, from.v_head_dim, DType::kF32};
    kv_write(k, v, slots.data(), n, from, pool);
  }
  for (const PagedKv& to : cache_->layers()) {
    fill_plane(to.k, from.k, k_plane_bytes(from), k_plane_bytes(to));
    fill_plane(to.v, from.v, v_plane_bytes(from), v_plane_bytes(to));
    if (to.scaling != KvScaling::kTokenHead) continue;
    const auto bytes = [](const PagedKv& kv) { return plane_scales(kv) * static_cast<int64_t>(sizeof(float)); };
    fill_plane(to.k_scales, from.k_scales, bytes(from), bytes(to));
    fill_plane(to.v_scales, from.v_scales, bytes(from), bytes(to));
  }
  stream_.wait(kStepData);
}

void GpuAttentionStep::make_queries() {
  const int64_t row = int64_t{group_.heads} * group_.head_dim, row_bytes = row * block_bytes(dtype_);
  host_queries_.resize(static_cast<size_t>(batch_->tokens() * row_bytes));
  RandomValues values(static_cast<size_t>(row));
  std::vector<float> query(static_cast<size_t>(row));
  for (int64_t token = 0; token < batch_->tokens(); ++token) {
    const float* from = values.run();
    std::transform(from, from + row, query.begin(), [](float x) { return x * kLargestQuery; });
    store_as(dtype_, query, host_queries_.data() + token * row_bytes);
  }
  queries_ = gpu::DeviceMemory(host_queries_.size());
  stream_.copy_to_device(queries_.data(), host_queries_.data(), host_queries_.size(), kStepData);
  const int64_t out_row = int64_t{group_.heads} * group_.v_head_dim * block_bytes(dtype_);
  out_ = gpu::DeviceMemory(static_cast<size_t>(batch_->tokens() * out_row));
  stream_.zero(out_.data(), out_.bytes());
  stream_.wait(kStepData);
}

HeadRows GpuAttentionStep::out() const {
  return {out_.data(), int64_t{group_.heads} * group_.v_head_dim, group_.v_head_dim, dtype_};
}

AttentionCheck GpuAttentionStep::check() const {
  std::vector<std::byte> out(out_.bytes());
  stream_.copy_to_host(out.data(), out_.data(), out.size(), kStepData);
  stream_.wait(kStepData);
  // The blocks of one request after another, in a cache of the host that has room for the longest.
  const int64_t room = batch_->view().block_table_stride;
  const KvCache host(group_, 1, room, allocate_host_kv(KvCache::bytes(group_, 1, room)));
  const PagedKv &to = host.layers()[0], &from = cache_->layers()[0];
  std::vector<int32_t> table(static_cast<size_t>(room));
  std::iota(table.begin(), table.end(), 0);
  const auto cached = [&](int64_t request) {
    const int64_t blocks = (batch_->kv_len(request) + group_.block_size - 1) / group_.block_size;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t block = batch_->table(request)[i];
      const auto copy = [&](void* destination, const void* source, int64_t bytes) {
        if (bytes == 0) return;
        stream_.copy_to_host(static_cast<std::byte*>(destination) + i * bytes,
                             static_cast<const std::byte*>(source) + block * bytes, static_cast<size_t>(bytes),
                             kStepData);
      };
      copy(to.k, from.k, k_block_bytes(from));
      copy(to.v, from.v, v_block_bytes(from));
      const int64_t scales = block_scales(from) * static_cast<int64_t>(sizeof(float));
      copy(to.k_scales, from.k_scales, scales);
      copy(to.v_scales, from.v_scales, scales);
    }
    stream_.wait(kStepData);
    return CachedRequest{to, table.data()};
  };
  return check_attention(group_, *batch_, rows_of(host_queries_.data(), group_.head_dim),
                         rows_of(out.data(), group_.v_head_dim), cached);
}

}  // namespace quire
