#pragma once
// The output of a step of `quire bench attention` beside the reference.
#include <cstdint>
#include <functional>

#include "attention/backend.h"
#include "bench/step_batch.h"
#include "tensor/head_rows.h"
#include "tensor/paged_kv.h"

namespace quire {

struct AttentionCheck {
  int64_t tokens = 0;  // compared, with all their heads
  double largest_error = 0, bound = 0;
  bool passed() const { return largest_error <= bound; }  // false for NaN
};

// A cache in the host's memory and the blocks of one request in it; valid until the next one is asked for.
struct CachedRequest {
  PagedKv kv;
  const int32_t* table;
};

// Compares with the reference in double: the first and the last token of the step and as many others, spread over it,
// as a second or so allows. q, out: all rows, in the host's memory.
AttentionCheck check_attention(const AttentionGroup& group, const StepBatch& batch, const ConstHeadRows& q,
                               const ConstHeadRows& out,
                               const std::function<CachedRequest(int64_t request)>& cached_request);

}  // namespace quire
