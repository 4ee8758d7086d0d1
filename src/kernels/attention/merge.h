#pragma once
// Merges softmax states over disjoint keys by log-sum-exp: the op that makes one row out of parts that were attended
// apart.
#include <cstdint>

namespace quire {

// states: `count` states (layout: attention.h) of one row and head, `stride` floats apart, merged in ascending order. A
// pair (output, lse) of another kernel is the state with values = output, maximum = lse, sum = 1. A part without keys
// has maximum -inf or, as some kernels report it, +inf; it weighs nothing whatever its values hold. A NaN sum is not
// taken for an empty part and reaches the result. out: [v_head_dim], 0 if no part has keys. lse: its log-sum-exp, -inf
// if no part has keys; may be null.
void merge_attention_states(const float* states, int64_t stride, int32_t count, int32_t v_head_dim, float* out,
                            float* lse);

}  // namespace quire
