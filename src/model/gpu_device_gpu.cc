#include <fmt/format.h>

#include <list>
#include <utility>

#include "base/error.h"
#include "gpu/memory.h"
#include "kernels/activation/gpu/silu_mul.h"
#include "kernels/embedding/gpu/embedding.h"
#include "kernels/kv_write/gpu/kv_write.h"
#include "kernels/linear/gpu/small_rows.h"
#include "kernels/norm/gpu/rms_norm.h"
#include "kernels/rope/gpu/rope.h"
#include "model/gpu_device.h"
#include "model/tensor_reader.h"
#include "model/weight_upload.h"

namespace quire {
namespace {

class GpuLinear final : public LinearLayer {
 public:
  GpuLinear(gpu::DeviceMemory weight, DType dtype, int64_t out, int64_t in, gpu::Context& context)
      : weight_(std::move(weight)), dtype_(dtype), out_(out), in_(in), context_(context) {}

  const void* weight() const { return weight_.data(); }
  int64_t out() const { return out_; }
  int64_t in() const { return in_; }
  size_t workspace_bytes(int64_t) const override { return 0; }  // the library has its own
  void forward(const void* x, void* y, int64_t m, Workspace&) const override { multiply(x, y, dtype_, m, false); }
  void forward_f32(const void* x, float* y, int64_t m, bool accumulate, Workspace&) const override {
    multiply(x, y, DType::kF32, m, accumulate);
  }
  bool forward_silu_mul(const void* x, void* y, int64_t m) const override {
    return multiply_few(x, y, out_ / 2, dtype_, m, gpu::SmallRowsEnd::kSiluMul);
  }

 private:
  // False: there are too many rows.
  bool multiply_few(const void* x, void* y, int64_t ldy, DType y_dtype, int64_t m, gpu::SmallRowsEnd end) const {
    const gpu::SmallRowsProduct product{x, in_, weight_.data(), y, ldy, m, out_, in_, dtype_, y_dtype, end};
    if (!gpu::small_rows_fits(product)) return false;
    gpu::small_rows(product, context_.info.multiprocessors, context_.stream);
    return true;
  }
  void multiply(const void* x, void* y, DType y_dtype, int64_t m, bool accumulate) const {
    if (multiply_few(x, y, out_, y_dtype, m, accumulate ? gpu::SmallRowsEnd::kAdd : gpu::SmallRowsEnd::kStore)) return;
    context_.blas.matmul(x, in_, weight_.data(), y, out_, m, out_, in_, dtype_, y_dtype, accumulate, context_.stream);
  }

  gpu::DeviceMemory weight_;
  DType dtype_;
  int64_t out_, in_;
  gpu::Context& context_;
};

class GpuEmbedding final : public EmbeddingLayer {
 public:
  // table: [vocab, n]; memory: if it isn't someone else's.
  GpuEmbedding(const void* table, DType dtype, int64_t vocab, int64_t n, gpu::Stream& stream,
               gpu::DeviceMemory memory = {})
      : memory_(std::move(memory)), table_(table), dtype_(dtype), vocab_(vocab), n_(n), stream_(stream) {}
  void lookup(const int32_t* ids, int64_t m, float* x) const override {
    gpu::embed(table_, dtype_, vocab_, ids, x, m, n_, stream_);
  }

 private:
  gpu::DeviceMemory memory_;
  const void* table_;
  DType dtype_;
  int64_t vocab_, n_;
  gpu::Stream& stream_;
};

class GpuModelDevice final : public ModelDevice {
 public:
  GpuModelDevice(const Checkpoint& checkpoint, const ModelOptions& options, gpu::Context& context, ThreadPool& pool)
      : dtype_(gpu_activation_dtype(options.dtype, checkpoint.config())),
        tensors_(checkpoint, options.progress),
        upload_(checkpoint, context.stream, pool),
        context_(context) {
    check_sizes(checkpoint);
  }

  DType dtype() const override { return dtype_; }
  size_t weight_bytes() const override { return weight_bytes_; }

  void expect(const Needs& needs) const override {
    const double weights = needs.matrix_elements * static_cast<double>(block_bytes(dtype_)) +
                           needs.vector_elements * static_cast<double>(sizeof(float));
    const auto free = static_cast<double>(gpu::free_device_bytes());
    if (weights + needs.step_bytes <= free) return;
    const auto gib = [](double bytes) { return bytes / (1 << 30); };
    throw Error(
        ErrorKind::kResourceExhausted,
        fmt::format("the model doesn't fit: {:.2f} GiB of weights in {} and {:.2f} GiB for a step, {:.2f} of the "
                    "GPU's {:.2f} GiB are free; --dtype with a smaller type, less of --max-num-batched-tokens "
                    "or --max-num-seqs, or --device cpu may do",
                    gib(weights), dtype_name(dtype_), gib(needs.step_bytes), gib(free),
                    gib(static_cast<double>(context_.info.total_bytes))),
        "device");
  }

  std::unique_ptr<LinearLayer> load_linear(const std::vector<Part>& parts, int64_t in) override {
    int64_t out = 0;
    for (const Part& part : parts) out += part.out;
    gpu::DeviceMemory memory = allocate(out * in, dtype_);
    auto* next = static_cast<std::byte*>(memory.data());
    for (const Part& part : parts) {
      load(part.name, {part.out, in}, dtype_, next);
      next += part.out * in * block_bytes(dtype_);
    }
    return std::make_unique<GpuLinear>(std::move(memory), dtype_, out, in, context_);
  }
  std::unique_ptr<EmbeddingLayer> load_embedding(const std::string& name, int64_t vocab, int64_t n) override {
    gpu::DeviceMemory memory = allocate(vocab * n, dtype_);
    load(name, {vocab, n}, dtype_, static_cast<std::byte*>(memory.data()));
    const void* table = memory.data();
    return std::make_unique<GpuEmbedding>(table, dtype_, vocab, n, context_.stream, std::move(memory));
  }
  std::unique_ptr<EmbeddingLayer> embedding_of(const LinearLayer& head) override {
    const auto& linear = static_cast<const GpuLinear&>(head);
    return std::make_unique<GpuEmbedding>(linear.weight(), dtype_, linear.out(), linear.in(), context_.stream);
  }
  const float* load_vector(const std::string& name, int64_t n) override {
    gpu::DeviceMemory& memory = vectors_.emplace_back(allocate(n, DType::kF32));
    load(name, {n}, DType::kF32, static_cast<std::byte*>(memory.data()));
    return static_cast<const float*>(memory.data());
  }
  const float* store(std::vector<float> values) override {
    gpu::DeviceMemory& memory = vectors_.emplace_back(allocate(std::ssize(values), DType::kF32));
    context_.stream.copy_to_device(memory.data(), values.data(), values.size() * sizeof(float), "constants");
    context_.stream.wait("constants");
    return static_cast<const float*>(memory.data());
  }
  void finish_loading() override { upload_.finish(); }

  void rms_norm(const float* x, const float* weight, float eps, void* y, int64_t m, int64_t n) const override {
    gpu::rms_norm(x, weight, eps, y, dtype_, m, n, context_.stream);
  }
  void rope_angles(const float* inv_freq, int64_t half, const int32_t* positions, int64_t m, double scale, float* cos,
                   float* sin) const override {
    gpu::rope_angles(inv_freq, half, positions, m, scale, cos, sin, context_.stream);
  }
  void rope_kv_write(void* qkv, int64_t heads, const int64_t* slots, int64_t m, const float* cos, const float* sin,
                     bool interleaved, const PagedKv& kv) const override {
    const int64_t row = heads * kv.head_dim + int64_t{kv.kv_heads} * (kv.head_dim + kv.v_head_dim);
    gpu::rope_kv_write(qkv, dtype_, row, heads, slots, m, cos, sin, interleaved, kv, context_.stream);
  }
  void silu_mul(const void* gate_up, void* y, int64_t m, int64_t n) const override {
    gpu::silu_mul(gate_up, y, dtype_, m, n, context_.stream);
  }
  void gather_rows(const void* x, const int32_t* rows, void* y, int64_t m, int64_t row_bytes) const override {
    gpu::gather_rows(x, rows, y, m, row_bytes, context_.stream);
  }

 private:
  // Rows are read 16 bytes at a time.
  static void check_sizes(const Checkpoint& checkpoint) {
    constexpr int64_t kUnit = 8;
    const ModelConfig& config = checkpoint.config();
    for (const auto& [name, size] :
         {std::pair{"hidden_size", config.hidden_size}, std::pair{"intermediate_size", config.intermediate_size}}) {
      if (size % kUnit == 0) continue;
      throw invalid_argument(
          fmt::format("{}: {} {} is not a multiple of {}, which the GPU's kernels need; --device cpu "
                      "runs this model",
                      checkpoint.path(), name, size, kUnit),
          "device");
    }
  }
  gpu::DeviceMemory allocate(int64_t elements, DType dtype) {
    const auto bytes = static_cast<size_t>(elements * block_bytes(dtype));
    weight_bytes_ += bytes;
    try {
      return gpu::DeviceMemory(bytes);
    } catch (const Error& error) {
      throw Error(
          error.kind(),
          fmt::format("the model's weights don't fit ({} bytes of them so far): {}; --dtype with a smaller type "
                      "or --device cpu may do",
                      weight_bytes_, error.what()),
          "device");
    }
  }
  void load(const std::string& name, const std::vector<int64_t>& shape, DType dtype, std::byte* destination) {
    const TensorInfo& tensor = tensors_.find(name, shape);
    upload_.upload(tensor, dtype, destination);
    tensors_.done(tensor);
  }

  DType dtype_;
  TensorReader tensors_;
  WeightUpload upload_;
  gpu::Context& context_;
  std::list<gpu::DeviceMemory> vectors_;
  size_t weight_bytes_ = 0;
};

}  // namespace

DType gpu_activation_dtype(ComputeDType compute, const ModelConfig& model) {
  switch (compute) {
    case ComputeDType::kF32:
      return DType::kF32;
    case ComputeDType::kF16:
      return DType::kF16;
    case ComputeDType::kBF16:
      return DType::kBF16;
    case ComputeDType::kAuto:
      break;
  }
  return model.dtype == "float16" || model.dtype == "quantized" ? DType::kF16 : DType::kBF16;
}

std::unique_ptr<ModelDevice> make_gpu_model_device(const Checkpoint& checkpoint, const ModelOptions& options,
                                                   gpu::Context& context, ThreadPool& pool) {
  return std::make_unique<GpuModelDevice>(checkpoint, options, context, pool);
}

}  // namespace quire
