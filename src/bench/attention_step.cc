#include "bench/attention_step.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/numa.h"
#include "bench/random_values.h"
#include "kernels/kv_write/kv_write.h"

namespace quire {
namespace {

void copy_layer(const PagedKv& from, const PagedKv& to, ThreadPool& pool) {
  const auto copy = [&](const void* source, void* destination, int64_t bytes) {
    constexpr int64_t kPiece = 1 << 20;
    pool.parallel_for((bytes + kPiece - 1) / kPiece, [&](int64_t begin, int64_t end, int) {
      std::memcpy(static_cast<std::byte*>(destination) + begin * kPiece,
                  static_cast<const std::byte*>(source) + begin * kPiece,
                  static_cast<size_t>(std::min(end * kPiece, bytes) - begin * kPiece));
    });
  };
  copy(from.k, to.k, from.blocks * k_block_bytes(from));
  copy(from.v, to.v, from.blocks * v_block_bytes(from));
  if (from.scaling != KvScaling::kTokenHead) return;
  const auto bytes = plane_scales(from) * static_cast<int64_t>(sizeof(float));
  copy(from.k_scales, to.k_scales, bytes);
  copy(from.v_scales, to.v_scales, bytes);
}

}  // namespace

AttentionStep::AttentionStep(const AttentionRow& row, int32_t layers, int64_t l3_bytes, ThreadPool& pool)
    : group_(row.group) {
  const AttentionWork work = attention_work(row);
  const int64_t blocks = step_blocks(row);
  layers = layers_to_visit(layers, work.kv_bytes, l3_bytes);
  check_step_memory(row, layers, blocks, work.tokens, sizeof(float), available_memory_bytes());
  cache_ = std::make_unique<KvCache>(group_, layers, blocks, allocate_host_kv(KvCache::bytes(group_, layers, blocks)));
  batch_ = std::make_unique<StepBatch>(row);
  fill(pool);
}

void AttentionStep::fill(ThreadPool& pool) {
  constexpr int64_t kRun = 256;  // tokens
  const PagedKv& kv = cache_->layers()[0];
  const int64_t k_row = int64_t{kv.kv_heads} * kv.head_dim, v_row = int64_t{kv.kv_heads} * kv.v_head_dim;
  const int64_t q_row = int64_t{group_.heads} * group_.head_dim, tokens = batch_->tokens();
  RandomValues values(static_cast<size_t>(std::max({kRun * k_row, kRun * v_row, q_row})));
  std::vector<int64_t> slots(kRun);
  // Every slot of the cache, past the ends of requests too.
  for (int64_t first = 0; first < kv.blocks * kv.block_size; first += kRun) {
    const int64_t n = std::min(kRun, kv.blocks * kv.block_size - first);
    std::iota(slots.begin(), slots.end(), first);
    const ConstHeadRows k{values.run(), k_row, kv.head_dim, DType::kF32};
    const ConstHeadRows v{values.run(), v_row, kv.v_head_dim, DType::kF32};
    kv_write(k, v, slots.data(), n, kv, pool);
  }
  for (int32_t i = 1; i < layers(); ++i) copy_layer(kv, layer(i).kv, pool);

  q_.resize(static_cast<size_t>(tokens * q_row));
  for (int64_t row = 0; row < tokens; ++row) {
    const float* from = values.run();
    std::transform(from, from + q_row, q_.begin() + row * q_row, [](float x) { return x * kLargestQuery; });
  }
  out_.resize(static_cast<size_t>(tokens * group_.heads * group_.v_head_dim));
}

ConstHeadRows AttentionStep::q() const {
  return {q_.data(), int64_t{group_.heads} * group_.head_dim, group_.head_dim, DType::kF32};
}

HeadRows AttentionStep::out() {
  return {out_.data(), int64_t{group_.heads} * group_.v_head_dim, group_.v_head_dim, DType::kF32};
}

AttentionCheck AttentionStep::check() const {
  const auto cached = [&](int64_t request) { return CachedRequest{cache_->layers()[0], batch_->table(request)}; };
  const int64_t row = int64_t{group_.heads} * group_.v_head_dim;
  return check_attention(group_, *batch_, q(), {out_.data(), row, group_.v_head_dim, DType::kF32}, cached);
}

}  // namespace quire
