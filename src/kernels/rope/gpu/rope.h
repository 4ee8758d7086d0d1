#pragma once
// The angles of rotary position embedding (arXiv 2104.09864) on the GPU; once a step, for every layer.
#include <cstdint>

#include "gpu/stream.h"

namespace quire::gpu {

// cos, sin [m, half] of positions[i] * inv_freq[j], each times `scale`; products, sine and cosine in double. All on the
// device.
void rope_angles(const float* inv_freq, int64_t half, const int32_t* positions, int64_t m, double scale, float* cos,
                 float* sin, Stream& stream);

}  // namespace quire::gpu
