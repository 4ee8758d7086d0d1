#include "model/cpu_device.h"

#include <cstring>
#include <list>
#include <span>
#include <utility>

#include "kernels/activation/silu_mul.h"
#include "kernels/embedding/embedding.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "model/weights.h"

namespace quire {
namespace {

class CpuLinear final : public LinearLayer {
 public:
  CpuLinear(PackedLinear weight, ThreadPool& pool) : weight_(std::move(weight)), pool_(pool) {}

  const PackedLinear& weight() const { return weight_; }
  bool int8() const override { return weight_.compute() == LinearCompute::kInt8; }
  size_t workspace_bytes(int64_t m) const override { return weight_.workspace_bytes(m, pool_.workers()); }
  void forward(const void* x, void* y, int64_t m, Workspace& workspace) const override {
    forward_f32(x, static_cast<float*>(y), m, false, workspace);
  }
  void forward_f32(const void* x, float* y, int64_t m, bool accumulate, Workspace& workspace) const override {
    multiply({static_cast<const float*>(x), weight_.in()}, y, m, accumulate, workspace);
  }
  bool forward_normed(const NormInput& x, void* y, int64_t m, Workspace& workspace) const override {
    multiply({x.x, weight_.in(), LinearInput::Form::kRmsNorm, x.weight, x.eps}, static_cast<float*>(y), m, false,
             workspace);
    return true;
  }
  bool add_silu_mul(const void* gate_up, float* y, int64_t m, Workspace& workspace) const override {
    multiply({static_cast<const float*>(gate_up), 2 * weight_.in(), LinearInput::Form::kSiluMul}, y, m, true,
             workspace);
    return true;
  }

 private:
  void multiply(const LinearInput& x, float* y, int64_t m, bool accumulate, Workspace& workspace) const {
    weight_.forward(x, y, weight_.out(), m, accumulate, workspace, pool_);
  }

  PackedLinear weight_;
  ThreadPool& pool_;
};

class CpuEmbedding final : public EmbeddingLayer {
 public:
  CpuEmbedding(EmbeddingTable table, ThreadPool& pool) : table_(std::move(table)), pool_(pool) {}
  void lookup(const int32_t* ids, int64_t m, float* x) const override {
    table_.lookup({ids, static_cast<size_t>(m)}, x, pool_);
  }

 private:
  EmbeddingTable table_;
  ThreadPool& pool_;
};

class TiedEmbedding final : public EmbeddingLayer {
 public:
  explicit TiedEmbedding(const PackedLinear& head) : head_(head) {}
  void lookup(const int32_t* ids, int64_t m, float* x) const override {
    for (int64_t i = 0; i < m; ++i) head_.dequantize_row(ids[i], x + i * head_.in());
  }

 private:
  const PackedLinear& head_;
};

class CpuModelDevice final : public ModelDevice {
 public:
  CpuModelDevice(const Checkpoint& checkpoint, const ModelOptions& options, ThreadPool& pool)
      : load_(checkpoint, options, pool), pool_(pool) {}

  DType dtype() const override { return DType::kF32; }
  size_t weight_bytes() const override { return weight_bytes_; }

  std::unique_ptr<LinearLayer> load_linear(const std::vector<Part>& parts, int64_t in) override {
    PackedLinear weight = load_.linear(parts, in);
    weight_bytes_ += weight.bytes();
    return std::make_unique<CpuLinear>(std::move(weight), pool_);
  }
  std::unique_ptr<EmbeddingLayer> load_embedding(const std::string& name, int64_t vocab, int64_t n) override {
    EmbeddingTable table = load_.embedding(name, vocab, n);
    weight_bytes_ += table.bytes();
    return std::make_unique<CpuEmbedding>(std::move(table), pool_);
  }
  std::unique_ptr<EmbeddingLayer> embedding_of(const LinearLayer& head) override {
    return std::make_unique<TiedEmbedding>(static_cast<const CpuLinear&>(head).weight());
  }
  const float* load_vector(const std::string& name, int64_t n) override { return store(load_.vector(name, n)); }
  const float* store(std::vector<float> values) override {
    weight_bytes_ += values.size() * sizeof(float);
    return vectors_.emplace_back(std::move(values)).data();
  }

  void rms_norm(const float* x, const float* weight, float eps, void* y, int64_t m, int64_t n) const override {
    quire::rms_norm(x, weight, eps, static_cast<float*>(y), m, n, pool_);
  }
  void rope_angles(const float* inv_freq, int64_t half, const int32_t* positions, int64_t m, double scale, float* cos,
                   float* sin) const override {
    quire::rope_angles(inv_freq, half, positions, m, scale, cos, sin, pool_);
  }
  void rope_kv_write(void* qkv, int64_t heads, const int64_t* slots, int64_t m, const float* cos, const float* sin,
                     bool interleaved, const PagedKv& kv) const override {
    const int64_t q_size = heads * kv.head_dim, k_size = int64_t{kv.kv_heads} * kv.head_dim;
    const int64_t row = q_size + k_size + int64_t{kv.kv_heads} * kv.v_head_dim;
    auto* q = static_cast<float*>(qkv);
    quire::rope_kv_write(q, row, heads, q + q_size, row, q + q_size + k_size, row, slots, m, cos, sin, kv.head_dim / 2,
                         interleaved, kv, pool_);
  }
  void silu_mul(const void* gate_up, void* y, int64_t m, int64_t n) const override {
    quire::silu_mul(static_cast<const float*>(gate_up), static_cast<float*>(y), n, m, n, pool_);
  }
  void gather_rows(const void* x, const int32_t* rows, void* y, int64_t m, int64_t row_bytes) const override {
    for (int64_t i = 0; i < m; ++i) {
      std::memcpy(static_cast<std::byte*>(y) + i * row_bytes, static_cast<const std::byte*>(x) + rows[i] * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
  }

 private:
  WeightLoader load_;
  ThreadPool& pool_;
  std::list<std::vector<float>> vectors_;
  size_t weight_bytes_ = 0;
};

}  // namespace

std::unique_ptr<ModelDevice> make_cpu_model_device(const Checkpoint& checkpoint, const ModelOptions& options,
                                                   ThreadPool& pool) {
  return std::make_unique<CpuModelDevice>(checkpoint, options, pool);
}

}  // namespace quire
