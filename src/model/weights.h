#pragma once
// From a checkpoint's tensors to weights packed for the CPU: chooses the arithmetic of each product, and gives the
// file's pages back once they are packed.
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear/linear.h"
#include "model/device.h"
#include "model/model.h"
#include "model/tensor_reader.h"

namespace quire {

class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, const ModelOptions& options, ThreadPool& pool);

  // A vector such as a norm's weight, [n] as floats.
  std::vector<float> vector(const std::string& name, int64_t n);
  // [out, in] for each name, stacked into one product in the order given. Throws Error(kInvalidArgument) naming the
  // tensor with its shape and the shape expected.
  using Part = ModelDevice::Part;
  PackedLinear linear(const std::vector<Part>& parts, int64_t in);
  EmbeddingTable embedding(const std::string& name, int64_t vocab, int64_t n);

 private:
  LinearCompute compute_for(const std::vector<const TensorInfo*>& tensors) const;

  TensorReader tensors_;
  ComputeDType dtype_;
  ThreadPool& pool_;
};

}  // namespace quire
