#include "bench/timed_model_device.h"

#include <string>
#include <string_view>
#include <utility>

namespace quire {
namespace {

double product(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

// "model.layers.0.self_attn.q_proj.weight" is "q".
std::string part_name(std::string_view tensor) {
  constexpr std::string_view kWeight = ".weight", kProjection = "_proj";
  const auto drop = [&](std::string_view ending) {
    if (tensor.ends_with(ending)) tensor.remove_suffix(ending.size());
  };
  drop(kWeight);
  tensor.remove_prefix(tensor.rfind('.') + 1);  // npos + 1 is 0
  drop(kProjection);
  return tensor == "lm_head" || tensor == "embed_tokens" ? "head" : std::string(tensor);
}

// Of a product: "qkv", "gate_up".
std::string product_name(const std::vector<ModelDevice::Part>& parts) {
  std::string name;
  for (const ModelDevice::Part& part : parts) {
    const std::string next = part_name(part.name);
    if (!name.empty() && next.size() > 1) name += '_';
    name += next;
  }
  return name;
}

class TimedLinear final : public LinearLayer {
 public:
  struct Size {
    int64_t in, out;
    double bytes;     // of the weights
    int64_t element;  // bytes of an activation
  };
  TimedLinear(std::unique_ptr<LinearLayer> inner, const Size& size, size_t op, OpTimes& times)
      : inner_(std::move(inner)), size_(size), op_(op), times_(times) {}

  const LinearLayer& inner() const { return *inner_; }
  bool int8() const override { return inner_->int8(); }
  size_t workspace_bytes(int64_t m) const override { return inner_->workspace_bytes(m); }
  void forward(const void* x, void* y, int64_t m, Workspace& workspace) const override {
    times_.begin_op();
    inner_->forward(x, y, m, workspace);
    end(m, 0);
  }
  void forward_f32(const void* x, float* y, int64_t m, bool accumulate, Workspace& workspace) const override {
    times_.begin_op();
    inner_->forward_f32(x, y, m, accumulate, workspace);
    end(m, accumulate ? product(m, size_.out) * sizeof(float) : 0);
  }
  bool forward_silu_mul(const void* x, void* y, int64_t m) const override {
    times_.begin_op();
    if (!inner_->forward_silu_mul(x, y, m)) return false;
    end(m, 0);
    return true;
  }
  bool forward_normed(const NormInput& x, void* y, int64_t m, Workspace& workspace) const override {
    times_.begin_op();
    if (!inner_->forward_normed(x, y, m, workspace)) return false;
    end(m, 0);
    return true;
  }
  bool add_silu_mul(const void* gate_up, float* y, int64_t m, Workspace& workspace) const override {
    times_.begin_op();
    if (!inner_->add_silu_mul(gate_up, y, m, workspace)) return false;
    end(m, product(m, size_.in * size_.element) + product(m, size_.out) * sizeof(float));
    return true;
  }

 private:
  void end(int64_t m, double other_bytes) const {
    times_.end_op(op_, size_.bytes + product(m, size_.in * size_.element) + other_bytes,
                  2 * product(m, size_.in) * static_cast<double>(size_.out));
  }

  std::unique_ptr<LinearLayer> inner_;
  Size size_;
  size_t op_;
  OpTimes& times_;
};

class TimedEmbedding final : public EmbeddingLayer {
 public:
  TimedEmbedding(std::unique_ptr<EmbeddingLayer> inner, OpTimes& times)
      : inner_(std::move(inner)), op_(times.op("embedding")), times_(times) {}
  void lookup(const int32_t* ids, int64_t m, float* x) const override {
    times_.begin_op();
    inner_->lookup(ids, m, x);
    times_.end_op(op_, 0, 0);
  }

 private:
  std::unique_ptr<EmbeddingLayer> inner_;
  size_t op_;
  OpTimes& times_;
};

class TimedModelDevice final : public ModelDevice {
 public:
  TimedModelDevice(std::unique_ptr<ModelDevice> inner, OpTimes& times)
      : inner_(std::move(inner)),
        times_(times),
        element_(static_cast<double>(block_bytes(inner_->dtype()))),
        norm_(times.op("norm")),
        rope_(times.op("rope, KV write")),
        activation_(times.op("activation")),
        gather_(times.op("gather")) {}

  DType dtype() const override { return inner_->dtype(); }
  size_t weight_bytes() const override { return inner_->weight_bytes(); }
  void expect(const Needs& needs) const override { inner_->expect(needs); }

  std::unique_ptr<LinearLayer> load_linear(const std::vector<Part>& parts, int64_t in) override {
    const size_t before = inner_->weight_bytes();
    std::unique_ptr<LinearLayer> layer = inner_->load_linear(parts, in);
    int64_t out = 0;
    for (const Part& part : parts) out += part.out;
    const size_t op =
        times_.op(product_name(parts), layer->int8() ? OpArithmetic::kInt8 : OpArithmetic::kF32, /*product=*/true);
    const TimedLinear::Size size = {in, out, static_cast<double>(inner_->weight_bytes() - before),
                                    block_bytes(inner_->dtype())};
    return std::make_unique<TimedLinear>(std::move(layer), size, op, times_);
  }
  std::unique_ptr<EmbeddingLayer> load_embedding(const std::string& name, int64_t vocab, int64_t n) override {
    return std::make_unique<TimedEmbedding>(inner_->load_embedding(name, vocab, n), times_);
  }
  std::unique_ptr<EmbeddingLayer> embedding_of(const LinearLayer& head) override {
    return std::make_unique<TimedEmbedding>(inner_->embedding_of(static_cast<const TimedLinear&>(head).inner()),
                                            times_);
  }
  const float* load_vector(const std::string& name, int64_t n) override { return inner_->load_vector(name, n); }
  const float* store(std::vector<float> values) override { return inner_->store(std::move(values)); }
  void finish_loading() override { inner_->finish_loading(); }

  void rms_norm(const float* x, const float* weight, float eps, void* y, int64_t m, int64_t n) const override {
    times_.begin_op();
    inner_->rms_norm(x, weight, eps, y, m, n);
    times_.end_op(norm_, product(m, n) * sizeof(float), 0);
  }
  void rope_angles(const float* inv_freq, int64_t half, const int32_t* positions, int64_t m, double scale, float* cos,
                   float* sin) const override {
    times_.begin_op();
    inner_->rope_angles(inv_freq, half, positions, m, scale, cos, sin);
    times_.end_op(rope_, 0, 0);
  }
  void rope_kv_write(void* qkv, int64_t heads, const int64_t* slots, int64_t m, const float* cos, const float* sin,
                     bool interleaved, const PagedKv& kv) const override {
    times_.begin_op();
    inner_->rope_kv_write(qkv, heads, slots, m, cos, sin, interleaved, kv);
    const int64_t row = (heads + kv.kv_heads) * kv.head_dim + int64_t{kv.kv_heads} * kv.v_head_dim;
    times_.end_op(rope_, product(m, row) * element_, 0);
  }
  void silu_mul(const void* gate_up, void* y, int64_t m, int64_t n) const override {
    times_.begin_op();
    inner_->silu_mul(gate_up, y, m, n);
    times_.end_op(activation_, 2 * product(m, n) * element_, 0);
  }
  void gather_rows(const void* x, const int32_t* rows, void* y, int64_t m, int64_t row_bytes) const override {
    times_.begin_op();
    inner_->gather_rows(x, rows, y, m, row_bytes);
    times_.end_op(gather_, product(m, row_bytes), 0);
  }

 private:
  std::unique_ptr<ModelDevice> inner_;
  OpTimes& times_;
  double element_;
  size_t norm_, rope_, activation_, gather_;
};

}  // namespace

std::unique_ptr<ModelDevice> make_timed_model_device(std::unique_ptr<ModelDevice> device, OpTimes& times) {
  return std::make_unique<TimedModelDevice>(std::move(device), times);
}

}  // namespace quire
