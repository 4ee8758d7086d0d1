#pragma once
// From hidden states to a request's embedding. A mean is summed token by token in the order of the prompt, in double,
// so that it is the same however the prompt was split over steps.
#include <cstdint>

#include "engine/sequence.h"
#include "tensor/dtype.h"

namespace quire {

// Consecutive rows of a step's hidden states: tokens [first, first + rows) of the sequence.
struct HiddenRows {
  Sequence* sequence;  // null: they are nobody's any more
  int64_t first, rows;
};

// Takes the states [of.rows, hidden_size] of `dtype` (f32, f16 or bf16) into the request's sum. A prompt's first token
// begins it anew: what was computed before a preemption does not count.
void pool_rows(const HiddenRows& of, const void* states, DType dtype);

// All tokens are pooled: fills the client's embedding. False if it has a value that is not a number.
bool finish_pooling(EngineRequest& request);

}  // namespace quire
