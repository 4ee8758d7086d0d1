#pragma once
// Whether this program's kernels can run on the present device.

namespace quire::gpu {

bool has_code_for_device();

}  // namespace quire::gpu
