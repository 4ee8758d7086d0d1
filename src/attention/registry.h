#pragma once
// Backends by vLLM's names. PHASED (alias ROCM_AITER_FA) splits the batch into decode, extend and prefill; CPU_ATTN
// runs it as one phase.
#include <memory>
#include <string>

#include "attention/backend.h"
#include "gpu/device.h"
#include "gpu/stream.h"

namespace quire {

// name: "" or "auto" = the best that fits. Throws Error(kInvalidArgument) that lists every backend with its reasons for
// refusing `group` if the name is unknown or unfit ("Block size must be a multiple of 16.", ...).
std::unique_ptr<AttentionBackend> make_attention_backend(const std::string& name, const AttentionGroup& group,
                                                         ExtendStrategy strategy = ExtendStrategy::kPaged);
// The same for a GPU, whose work goes to the stream.
std::unique_ptr<AttentionBackend> make_gpu_attention_backend(const std::string& name, const AttentionGroup& group,
                                                             ExtendStrategy strategy, gpu::Stream& stream,
                                                             const gpu::DeviceInfo& device);

}  // namespace quire
