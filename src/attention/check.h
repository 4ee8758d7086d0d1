#pragma once
// The rules of design.md section 4.1 as a check for debug builds.
#include "attention/batch.h"

namespace quire {

// std::logic_error that names the broken rule: ranges that follow each other as decode, extend, prefill and cover the
// batch; offsets that ascend; 0 < query_len <= kv_len, but for padding (kv_len 0, slots -1); the phase of every
// request, where a decode has up to max(1, decode.max_query_len) tokens; maxima that hold; one slot a token.
void check_batch(const AttentionBatch& batch);

}  // namespace quire
