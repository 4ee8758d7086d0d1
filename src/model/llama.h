#pragma once
// Llama (arXiv 2302.13971, 2407.21783): pre-norm decoder, grouped-query attention with rotary embedding, SwiGLU.
#include <memory>

#include "model/model.h"

namespace quire {

std::unique_ptr<Model> load_llama(const Checkpoint& checkpoint, const ModelOptions& options,
                                  std::unique_ptr<ModelDevice> device);

}  // namespace quire
