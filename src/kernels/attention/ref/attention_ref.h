#pragma once
// Naive attention in double over the paged cache, with the addresses of tensor/paged_kv.h taken element by element:
// what the kernels are tested against.
#include <cstdint>

#include "kernels/attention/attention.h"

namespace quire {

// Rows [first_row, first_row + rows) of args.q, at first_position... of the request whose blocks are in block_table.
// out: [rows, heads, v_head_dim]. Returns the largest |v| of the keys up to the last row, to which errors are relative.
double attention_ref(const AttentionArgs& args, const int32_t* block_table, int64_t first_row, int64_t rows,
                     int64_t first_position, double* out);

}  // namespace quire
