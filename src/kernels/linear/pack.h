#pragma once
// From rows of a checkpoint's tensor to one panel.
#include <cstddef>
#include <cstdint>

#include "kernels/linear/linear.h"
#include "kernels/linear/packed_format.h"
#include "tensor/dtype.h"

namespace quire {

// The format of a source type's panels. Throws Error(kInvalidArgument) for types that are no weights.
PanelFormat panel_format(DType source, LinearCompute compute);

// rows [count <= 16] of `in` elements each, contiguous; missing rows become zeros. panel: panel_bytes(format, in).
void pack_panel(DType source, const std::byte* rows, int64_t count, int64_t in, PanelFormat format, std::byte* panel);

// Row `row` of a panel as floats, [in].
void unpack_row(PanelFormat format, const std::byte* panel, int64_t row, int64_t in, float* dst);

}  // namespace quire
