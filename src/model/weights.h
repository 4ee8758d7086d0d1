#pragma once
// From a checkpoint's tensors to packed weights: looks tensors up, checks their shapes, chooses the arithmetic of each
// product, and gives the file's pages back once they are packed.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear/linear.h"
#include "model/model.h"

namespace quire {

class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, const ModelOptions& options, ThreadPool& pool);

  // A vector such as a norm's weight, [n] as floats.
  std::vector<float> vector(const std::string& name, int64_t n);
  // [out, in] for each name, stacked into one product in the order given. Throws Error(kInvalidArgument) naming the
  // tensor with its shape and the shape expected.
  struct Part {
    std::string name;
    int64_t out;
  };
  PackedLinear linear(const std::vector<Part>& parts, int64_t in);
  EmbeddingTable embedding(const std::string& name, int64_t vocab, int64_t n);

 private:
  const TensorInfo& find(const std::string& name, const std::vector<int64_t>& shape) const;
  LinearCompute compute_for(const std::vector<const TensorInfo*>& tensors) const;
  void done(const TensorInfo& tensor);

  const Checkpoint& checkpoint_;
  const ModelOptions& options_;
  ThreadPool& pool_;
  int64_t loaded_bytes_ = 0;
};

}  // namespace quire
