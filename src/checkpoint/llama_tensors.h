#pragma once
// The tensors that a model of Llama's shape consists of.
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace quire {

struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first
};

// In the order of the network; without lm_head.weight where the config ties it to the embedding.
std::vector<ExpectedTensor> llama_tensors(const ModelConfig& config);

// Throws Error(kInvalidArgument) naming the first tensor that is missing or has another shape than the config asks for.
void check_llama_tensors(const Checkpoint& checkpoint);

}  // namespace quire
