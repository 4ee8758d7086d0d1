#pragma once
// A checkpoint's tensors as a loader of weights wants them: of the right shape, and given back once they are used.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace quire {

class TensorReader {
 public:
  // progress: gets the fraction that is loaded; may be empty.
  TensorReader(const Checkpoint& checkpoint, const std::function<void(double)>& progress)
      : checkpoint_(checkpoint), progress_(progress) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }
  // Throws Error(kInvalidArgument) naming the tensor, its shape and the shape expected, or rows that aren't whole
  // blocks.
  const TensorInfo& find(const std::string& name, const std::vector<int64_t>& shape) const;
  void done(const TensorInfo& tensor);

 private:
  const Checkpoint& checkpoint_;
  const std::function<void(double)>& progress_;
  int64_t loaded_bytes_ = 0;
};

}  // namespace quire
