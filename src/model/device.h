#pragma once
// What a model runs on. A family's forward pass is written once, in terms of the ops below; a device brings memory,
// weights and the ops. Pointers are of the device's memory. The residual stream, norms' weights and logits are f32, all
// other activations are of dtype(). Ops are put in order, not necessarily done, when they return.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/paged_kv.h"
#include "tensor/workspace.h"

namespace quire {

struct NormInput {
  const float *x, *weight;
  float eps;
};

// y = x W^T (+ y) for W [out, in]. x [m, in] of the device's dtype.
class LinearLayer {
 public:
  virtual ~LinearLayer() = default;
  // y [m, out] of the device's dtype.
  virtual void forward(const void* x, void* y, int64_t m, Workspace& workspace) const = 0;
  // y [m, out] f32: logits, or the residual stream, to which the product is added.
  virtual void forward_f32(const void* x, float* y, int64_t m, bool accumulate, Workspace& workspace) const = 0;

  // Two ops at once, to the same bits. False: this layer can't, nothing was done.
  // y [m, out / 2] = silu_mul() of forward(), of the device's dtype, for the first half of the outputs as gate and the
  // second as up.
  virtual bool forward_silu_mul(const void* x, void* y, int64_t m) const {
    (void)x, (void)y, (void)m;
    return false;
  }
  // forward() of the rms_norm() of x [m, in] f32.
  virtual bool forward_normed(const NormInput& x, void* y, int64_t m, Workspace& workspace) const {
    (void)x, (void)y, (void)m, (void)workspace;
    return false;
  }
  // forward_f32(), added to y, of the silu_mul() of gate_up [m, 2 * in] of the device's dtype.
  virtual bool add_silu_mul(const void* gate_up, float* y, int64_t m, Workspace& workspace) const {
    (void)gate_up, (void)y, (void)m, (void)workspace;
    return false;
  }
  // Whether its products are of int8, as of quantized weights; for measurements.
  virtual bool int8() const { return false; }
  // Scratch of either for m rows.
  virtual size_t workspace_bytes(int64_t m) const = 0;
};

// x[i] = row ids[i] of the table, as f32; x [m, n].
class EmbeddingLayer {
 public:
  virtual ~EmbeddingLayer() = default;
  virtual void lookup(const int32_t* ids, int64_t m, float* x) const = 0;
};

class ModelDevice {
 public:
  virtual ~ModelDevice() = default;
  virtual DType dtype() const = 0;
  virtual size_t weight_bytes() const = 0;  // of all that was loaded

  // What a model is going to take, said before anything of it is loaded. Doubles: sizes of a file may have any product.
  struct Needs {
    double matrix_elements = 0;  // of the device's dtype
    double vector_elements = 0;  // f32
    double step_bytes = 0;       // activations and logits of the largest step
  };
  // Throws Error(kResourceExhausted) with the sizes if the device has less memory than that.
  virtual void expect(const Needs&) const {}

  // Weights. All throw Error(kInvalidArgument) naming the tensor, its shape and the shape expected.
  struct Part {
    std::string name;
    int64_t out;
  };
  // [out, in] for each name, stacked into one product in the order given.
  virtual std::unique_ptr<LinearLayer> load_linear(const std::vector<Part>& parts, int64_t in) = 0;
  virtual std::unique_ptr<EmbeddingLayer> load_embedding(const std::string& name, int64_t vocab, int64_t n) = 0;
  // The rows of a product made by this device; it has to outlive them.
  virtual std::unique_ptr<EmbeddingLayer> embedding_of(const LinearLayer& head) = 0;
  // [n] as floats; they live as long as the device.
  virtual const float* load_vector(const std::string& name, int64_t n) = 0;
  virtual const float* store(std::vector<float> values) = 0;
  // All is loaded: what loading alone needed is given back.
  virtual void finish_loading() {}

  // Ops, with the contracts of kernels/{norm,rope,kv_write,activation}.
  virtual void rms_norm(const float* x, const float* weight, float eps, void* y, int64_t m, int64_t n) const = 0;
  virtual void rope_angles(const float* inv_freq, int64_t half, const int32_t* positions, int64_t m, double scale,
                           float* cos, float* sin) const = 0;
  // qkv: m rows of `heads` heads of q, then kv.kv_heads of K, then of V. Rotates q in place and K on its way to the
  // cache.
  virtual void rope_kv_write(void* qkv, int64_t heads, const int64_t* slots, int64_t m, const float* cos,
                             const float* sin, bool interleaved, const PagedKv& kv) const = 0;
  // gate_up [m, 2n], y [m, n].
  virtual void silu_mul(const void* gate_up, void* y, int64_t m, int64_t n) const = 0;
  // Row i of y is row rows[i] of x, each of row_bytes bytes; they don't overlap.
  virtual void gather_rows(const void* x, const int32_t* rows, void* y, int64_t m, int64_t row_bytes) const = 0;
};

}  // namespace quire
